#pragma once

#include "assay/formats/block_format.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/mlx_config.h"

namespace assay {

enum class MlxFpMode : uint8_t { kMxfp4, kMxfp8, kNvfp4 };

/// MLX's floating-point modes: mxfp4 and mxfp8 (32 values share a power-of-two scale), nvfp4 (16
/// share an e4m3 scale). The names of OCP and NVIDIA, MLX's own rules.
/// Layout:   planes "codes" U32 [rows, cols · bits / 32] (the byte stream of BlockFormat in
///           little-endian words), "scales" U8 [rows, cols / block]; with a global scale
///           "global_scale" F32 [], MLX's is the largest magnitude itself.
/// Values:   mx scales are the smallest power of two ≥ T(max / 6 or 448), T being the dtype of the
///           weight; a zero block takes byte 127; below 2^−127 (upstream's conversion is undefined
///           there) byte 0, as MLX's Metal kernel writes. fp4 codes are the nearest entry, ties
///           toward zero, code 8 never. Scale byte 255 of the mx modes decodes to infinity.
///           Decodes to bf16, with a global scale to f32, whatever the dtype of the source was.
/// Accuracy: exact on every target: the bits of the CPU backend of mlx 0.32.4.
/// Source:   MLX, mlx/ops.cpp fp_quantize; docs/formats/mlx-fp.md.
class MlxFpFormat final : public BlockFormat,
                          public MlxFormat,
                          public std::enable_shared_from_this<MlxFpFormat> {
 public:
  /// Requires no global scale unless mode is nvfp4. Errors: internal.
  MlxFpFormat(MlxFpMode mode, bool global_scale);

  static std::shared_ptr<const MlxFpFormat> Make(MlxFpMode mode, bool global_scale = false);

  MlxFpMode mode() const noexcept { return mode_; }
  bool has_global_scale() const noexcept { return global_scale_; }
  /// What config.json calls it: "mxfp4", "mxfp8", "nvfp4".
  std::string_view ModeName() const noexcept;

  MlxSettings Settings() const override;

  std::string Name() const override;
  std::string Summary() const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;
  const CheckpointForm* Form() const override;

 private:
  ScaleValues ValuesOfScales(const EncodedMatrix& encoded, DecodeRounding rounding) const override;

  MlxFpMode mode_;
  bool global_scale_;
};

extern const FormatFamily kMlxFpFamily;

}  // namespace assay
