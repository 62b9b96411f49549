#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "assay/base/aligned_buffer.h"
#include "assay/kernels/panel_decoder.h"

namespace assay {

/// Panels of W block of columns by block of columns, f32 (T = float) or bf16 words (T = uint16_t),
/// whatever the family's decoder can do: those of whole rows decode a few MiB of rows once, and
/// panels are copied from there.
/// Threads: as PanelDecoder; `staged` belongs to one thread.
template <typename T>
class PanelSource {
 public:
  PanelSource(const EncodedMatrix& weight, DecodeRounding rounding, int64_t k_block)
      : cols_(weight.cols),
        decoder_(MakePanelDecoder(weight, rounding)),
        whole_rows_(k_block < cols_ &&
                    k_block % std::max<int64_t>(1, decoder_->ColumnGrain()) != 0) {}

  /// Most rows for one Stage.
  int64_t MaxRows(int64_t wanted) const {
    constexpr int64_t kMaxStagedValues = int64_t{1} << 21;
    return whole_rows_ ? std::clamp<int64_t>(kMaxStagedValues / cols_, 1, wanted) : wanted;
  }

  /// Before Decode of columns of rows [first, +rows).
  void Stage(int64_t first, int64_t rows, AlignedBuffer<T>& staged) const {
    if (!whole_rows_) return;
    staged.Resize(static_cast<size_t>(rows * cols_));
    DecodeTo(first, rows, 0, cols_, staged.data(), cols_);
  }

  /// Rows [row, +rows) of those that Stage had from row `first` on.
  void Decode(int64_t first, int64_t row, int64_t rows, int64_t col, int64_t count,
              const AlignedBuffer<T>& staged, T* out, int64_t stride) const {
    if (!whole_rows_) {
      DecodeTo(row, rows, col, count, out, stride);
      return;
    }
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(out + r * stride, staged.data() + (row - first + r) * cols_ + col,
                  static_cast<size_t>(count) * sizeof(T));
    }
  }

 private:
  void DecodeTo(int64_t row, int64_t rows, int64_t col, int64_t count, T* out,
                int64_t stride) const {
    if constexpr (std::is_same_v<T, float>) {
      decoder_->DecodeF32(row, rows, col, count, out, stride);
    } else {
      decoder_->DecodeBF16(row, rows, col, count, out, stride);
    }
  }

  int64_t cols_;
  std::unique_ptr<PanelDecoder> decoder_;
  bool whole_rows_;
};

}  // namespace assay
