#pragma once

#include <memory>

#include "assay/formats/catalogue.h"

namespace assay {

/// Where the codes of an integer weight stand.
enum class IntStorage : uint8_t {
  kStream,  ///< I32 words, a bit stream per row; fields may straddle words (pack-quantized)
  kLegacy,  ///< I32 words of ⌊32 / bits⌋ whole fields (compressed-tensors 0.9); decoded only
  kBytes,   ///< one I8 a code, 8 bits (int-quantized, naive-quantized)
};

/// Integers with a float scale per group of a row or per row: compressed-tensors' int formats.
/// Layout:   planes "codes" I32 [N, words] (kBytes: I8 [N, K]); "scales" S [N, G]; asymmetric adds
///           "zero_points" I32 [⌈N·b/32⌉, G], fields packed down the rows (kBytes: I8 [N, G]).
///           Packed fields store value + 2^(b−1), and "shape" I64 [2] stands beside them. S is the
///           dtype of the weight.
/// Values:   w = S(S(q − zp) · scale). Encode, every step rounded to S: symmetric scale =
///           max(|min|, |max|) / ((2^b − 1)/2), epsilon of S when zero; q clamps before it rounds
///           to nearest even. Asymmetric: scale = (max − min)/(2^b − 1). 0 counts as an element.
/// Accuracy: exact: the bytes of compressed-tensors.
/// Source:   compressed-tensors 0.20.1; docs/formats/int_packed.md.
class IntPackedFormat final : public Format, public std::enable_shared_from_this<IntPackedFormat> {
 public:
  static constexpr int64_t kWholeRow = 0;

  /// Requires 1 ≤ bits ≤ 8 (kBytes: 8), group_size ≥ 0. Errors: internal.
  IntPackedFormat(int bits, int64_t group_size, bool symmetric, IntStorage storage);

  int bits() const noexcept { return bits_; }
  int64_t group_size() const noexcept { return group_size_; }
  bool symmetric() const noexcept { return symmetric_; }
  IntStorage storage() const noexcept { return storage_; }

  int64_t GroupLength(int64_t cols) const noexcept {
    return group_size_ == kWholeRow ? cols : group_size_;
  }
  /// 32-bit words of codes in a row of `num_codes`. Requires packed storage.
  static int64_t WordsFor(int64_t num_codes, int bits, IntStorage storage) noexcept;

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override { return storage_ != IntStorage::kLegacy && bits_ >= 2; }
  std::optional<GroupGeometry> Geometry() const override;
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;
  const CheckpointForm* Form() const override;

 private:
  int bits_;
  int64_t group_size_;
  bool symmetric_;
  IntStorage storage_;
};

extern const FormatFamily kIntPackedFamily;

/// Integer weights of a compressed-tensors checkpoint: pack-quantized, int-quantized,
/// naive-quantized with "type": "int".
void RecogniseIntPacked(const CheckpointSource& source, Recognition& found);

/// P.weight_packed, P.weight_scale, P.weight_zero_point, P.weight_shape (kBytes: P.weight), and the
/// config of compressed-tensors 0.20.
const CheckpointForm* IntPackedForm(IntStorage storage);

}  // namespace assay
