#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/catalogue.h"

namespace assay {

/// e4m3fn codes that share a scale per block, per row or per tensor.
/// Layout:   planes "codes" F8_E4M3 [rows, cols] and "scales" [⌈rows / block rows⌉,
///           ⌈cols / block cols⌉], row-major; blocks at the lower and right edge are partial.
/// Values:   value = code · scale, one f32 product, rounded once to the checkpoint's dtype; the
///           code NaN decodes to NaN, a product beyond the dtype to infinity.
///           Encode: scale = S(amax / 448), S the scale's dtype (1 for a zero block); code =
///           e4m3(clamp(S(x / scale), ±448)), nearest even. Power-of-two scales (`:ue8m0`) take
///           the smallest exponent whose block fits. NaN and infinity are refused.
/// Accuracy: exact on every target.
/// Source:   DeepSeek-V3 inference/fp8_cast_bf16.py; compressed-tensors 0.20 (float scales) and
///           transformers 5.24 (ue8m0) encoders; docs/formats/fp8_block.md.
class Fp8BlockFormat final : public Format, public std::enable_shared_from_this<Fp8BlockFormat> {
 public:
  /// Stands for a block as long as the axis: per-tensor is {0, 0}, per-channel {1, 0}.
  static constexpr int64_t kWholeAxis = 0;

  /// Requires both ≥ 0 and scale_dtype F32, F16, BF16 or F8_E8M0. Errors: internal.
  Fp8BlockFormat(int64_t block_rows, int64_t block_cols, DType scale_dtype);

  static std::shared_ptr<const Fp8BlockFormat> Make(int64_t block_rows, int64_t block_cols,
                                                    DType scale_dtype);

  /// "fp8-block128", "fp8-block64x128:ue8m0", "fp8-tensor", "fp8-channel:bf16"; null otherwise.
  static FormatPtr FromName(std::string_view name);

  int64_t block_rows() const noexcept { return block_rows_; }
  int64_t block_cols() const noexcept { return block_cols_; }
  DType scale_dtype() const noexcept { return scale_dtype_; }

  /// Rows and columns of the scale plane.
  Shape ScaleShape(int64_t rows, int64_t cols) const;

  std::string Name() const override;
  std::string Summary() const override;
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;
  const CheckpointForm* Form() const override;

 private:
  void DecodeRow(const EncodedMatrix& encoded, int64_t row, std::span<const float> scales,
                 std::span<float> out) const;

  int64_t block_rows_;
  int64_t block_cols_;
  DType scale_dtype_;
};

extern const FormatFamily kFp8BlockFamily;

/// Recognises DeepSeek-style fp8 weights (quant_method "fp8") and their FP4 experts.
void RecogniseFp8Block(const CheckpointSource& source, Recognition& found);

/// X.weight with X.weight_scale_inv, and quantization_config as DeepSeek-V3 publishes it.
const CheckpointForm* Fp8BlockCheckpointForm();

}  // namespace assay
