#pragma once

#include <memory>

#include "assay/formats/catalogue.h"

namespace assay {

/// AWQ: 4-bit codes with a scale and an integer zero per group of inputs; decoded only.
/// Layout:   "gemm": planes "qweight" I32 [K, N/8], "qzeros" I32 [G, N/8] (nibble i of a word holds
///           output 8c + order[i], order = 0 2 4 6 1 3 5 7), "scales" [G, N].
///           "gemv": "qweight" I32 [N, K/8] and "qzeros" I32 [N, W], nibbles in sequence along K;
///           "scales" [N, 8 W], zero-padded, W from the group size.
/// Values:   w[n][k] = (code − zero) · scale, one product rounded to the scale's dtype.
/// Accuracy: exact.
/// Source:   AutoAWQ 0.2.9; docs/formats/awq.md.
class AwqFormat final : public Format {
 public:
  static constexpr int64_t kWholeAxis = 0;

  AwqFormat(int64_t group_size, bool gemv) : group_size_(group_size), gemv_(gemv) {}

  int64_t GroupLength(int64_t cols) const noexcept {
    return group_size_ == kWholeAxis ? cols : group_size_;
  }

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
  bool gemv_;
};

extern const FormatFamily kAwqFamily;

/// Weights whose config (quantization_config, or quant_config.json) has quant_method "awq".
void RecogniseAwq(const CheckpointSource& source, Recognition& found);

}  // namespace assay
