#pragma once

#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"

namespace assay {

/// 4-bit integers as ModelOpt exports them (W4A16_AWQ): packed along the output axis, unlike every
/// other 4-bit checkpoint.
/// Layout:   planes "codes" U8 [rows / 2, cols], "scales" F32 [rows, cols / group]; byte [r, c] is
///           value (2r, c) in its low nibble, (2r + 1, c) in its high one, two's complement −8 … 7.
/// Values:   value = code · scale, one f32 product, rounded once to the checkpoint's dtype. The
///           layer's pre_quant_scale multiplies its input and is no part of the weight.
/// Errors:   decoded only: the scales come out of a search over activations.
/// Source:   nvidia-modelopt 0.47.0; docs/formats/modelopt-int4.md.
class ModelOptInt4Format final : public Format {
 public:
  /// Requires group_size ≥ 1. Errors: internal.
  explicit ModelOptInt4Format(int64_t group_size);

  int64_t group_size() const noexcept { return group_size_; }

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override { return false; }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;

 private:
  int64_t group_size_;
};

extern const FormatFamily kModelOptInt4Family;

}  // namespace assay
