#pragma once

#include <cstdint>
#include <memory>

#include "assay/formats/format.h"

namespace assay {

/// Turns rows × a block of columns of packed planes into a panel small enough for a cache.
/// Why: it is all that a family must supply for a large-M product; the engine multiplies.
/// Threads: const methods may run at once on different panels.
class PanelDecoder {
 public:
  virtual ~PanelDecoder() = default;

  /// Column blocks start at multiples of this and hold multiples of it (the last block may be
  /// shorter). cols when only whole rows can be decoded.
  virtual int64_t ColumnGrain() const noexcept = 0;

  /// Decodes rows [first_row, +num_rows) × columns [first_col, +num_cols) to f32:
  /// out[r · row_stride + c]. Requires row_stride ≥ num_cols (values).
  /// Errors: input for a code that has no value.
  virtual void DecodeF32(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                         float* out, int64_t row_stride) const = 0;

  /// The same rounded to bf16 words, nearest even. Default: through DecodeF32.
  virtual void DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                          uint16_t* out, int64_t row_stride) const;
};

/// The decoder of the weight's family, or one over Format::DecodeRows (whole rows) when the family
/// has none of its own. Holds a share of the planes.
std::unique_ptr<PanelDecoder> MakePanelDecoder(const EncodedMatrix& weight,
                                               DecodeRounding rounding);

}  // namespace assay
