#pragma once

#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"
#include "assay/formats/mlx_config.h"

namespace assay {

/// MLX's affine quantisation: a run of `group_size` values along a row shares a scale and a bias,
/// value = code · scale + bias.
/// Layout:   planes "codes" U32 [rows, cols · bits / 32], "scales" and "biases" T [rows,
///           cols / group_size], T being EncodedMatrix::dtype (f32, f16 or bf16). Code k of a row
///           is bits k · bits … of the row's little-endian bit stream, least significant first:
///
///             bits 4:  byte 0 = c0 | c1 << 4    byte 1 = c2 | c3 << 4    …
///             bits 3:  bytes 0–2 = c0 … c7, 3 bits each, and so on
///
///           A group takes group_size · bits / 8 bytes, always whole words.
/// Values:   the group's most extreme element is the bias and has code 0; the scale is negative
///           when that element is the maximum. Codes come from the unrounded f32 scale, which is
///           rounded to T afterwards. Decoding rounds to T twice: T(T(code · scale) + bias).
///           Not encoded: NaN, infinities, and groups whose maximum − minimum exceeds the largest
///           f32 (upstream writes an infinite scale that decodes to NaN). A constant group beyond
///           about 3.4e31 gets scale −0 and decodes to the constant.
/// Accuracy: exact: the same bits as the CPU backend of MLX 0.32.4 on every target.
/// Source:   MLX, mlx/backend/cpu/quantized.cpp; docs/formats/affine.md.
class AffineFormat final : public Format,
                           public MlxFormat,
                           public std::enable_shared_from_this<AffineFormat> {
 public:
  static constexpr int kBits[] = {2, 3, 4, 5, 6, 8};
  static constexpr int kGroupSizes[] = {32, 64, 128};

  /// Requires one of kBits and one of kGroupSizes. Errors: internal.
  AffineFormat(int bits, int group_size);

  /// The shared instance. Requires and errors as the constructor.
  static std::shared_ptr<const AffineFormat> Make(int bits, int group_size);
  static bool Supports(int64_t bits, int64_t group_size) noexcept;

  int bits() const noexcept { return bits_; }
  int group_size() const noexcept { return group_size_; }

  std::string Name() const override;
  MlxSettings Settings() const override { return {"affine", bits_, group_size_, false}; }
  const CheckpointForm* Form() const override { return MlxCheckpointForm(); }
  std::string Summary() const override;
  std::optional<GroupGeometry> Geometry() const override {
    return GroupGeometry{bits_, group_size_};
  }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  /// kNone: code · scale + bias in f32, two f32 roundings.
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;

 private:
  int bits_;
  int group_size_;
};

extern const FormatFamily kAffineFamily;

}  // namespace assay
