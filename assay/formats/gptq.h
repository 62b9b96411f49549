#pragma once

#include <memory>

#include "assay/formats/catalogue.h"

namespace assay {

/// How GPTQ's words hold codes and zeros.
enum class GptqLayout : uint8_t {
  kV1,      ///< checkpoint_format "gptq": a bit stream; stored zero = zero − 1
  kV2,      ///< "gptq_v2": a bit stream; stored zero = zero
  kPlanar,  ///< "gptq_p": for each 32 codes one run of words per bit plane; stored zero = zero
};

/// GPTQ: integer codes with a scale and an integer zero per group of inputs; decoded only.
/// Layout:   planes "qweight" I32 [⌈K·b/32⌉, N], packed down the inputs; "qzeros" I32 [G,
///           ⌈N·b/32⌉], packed along the outputs; "scales" [G, N]; "g_idx" I32 [K], the group of
///           each input. 3 bits and planar words need K and N divisible by 32.
/// Values:   w[n][k] = scale[G][n] · (code − zero), G = g_idx[k]: integer subtraction, one product
///           rounded to the scale's dtype.
/// Accuracy: exact.
/// Source:   GPTQModel 7.7; docs/formats/gptq.md.
class GptqFormat final : public Format {
 public:
  static constexpr int64_t kWholeAxis = 0;  ///< one group a row: "group_size": -1

  GptqFormat(int bits, int64_t group_size, GptqLayout layout)
      : bits_(bits), group_size_(group_size), layout_(layout) {}

  /// 2, 3, 4, 8 bits as streams; 2 to 8 planar.
  static bool Supports(int64_t bits, GptqLayout layout) noexcept;

  int bits() const noexcept { return bits_; }
  int64_t group_size() const noexcept { return group_size_; }

  int64_t NumGroups(int64_t cols) const noexcept;

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override { return false; }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  /// Also: every g_idx names a group.
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;

 private:
  int bits_;
  int64_t group_size_;
  GptqLayout layout_;
};

extern const FormatFamily kGptqFamily;

}  // namespace assay
