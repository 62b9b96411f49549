#pragma once

#include "assay/formats/block_format.h"
#include "assay/formats/catalogue.h"

namespace assay {

/// Largest element times largest block scale: 6 · 448.
inline constexpr float kNvfp4Max = 2688.0f;

/// Whose rules for the two scales. The codes and block scales look alike; the tensor scale of
/// compressed-tensors is the reciprocal of the others'.
enum class Nvfp4Producer : uint8_t {
  kModelOpt,           ///< NVIDIA's own; the plain name
  kCompressedTensors,  ///< llm-compressor, vLLM
  kTorchao,            ///< torchao with a per-tensor scale
  kTorchaoOneLevel,    ///< torchao without one
};

/// NVFP4: e2m1 elements, an e4m3 scale for every 16 values of a row, one f32 scale for the matrix.
/// Layout:   planes "codes" U8 [rows, cols / 2] (even element in the low nibble), "scales" F8_E4M3
///           [rows, cols / 16], then the scale of the matrix:
///
///             ModelOpt, torchao     "tensor_scale" F32 []    element · (scale · tensor_scale)
///             compressed-tensors    "global_scale" F32 [1]   element · (scale / global_scale)
///             torchao, one level    none                     element · scale
///
/// Values:   both operations are single f32 ones, the result is rounded once to the checkpoint's
///           dtype (compressed-tensors: always bf16). Code 8 decodes to −0; ModelOpt's own decoder
///           gives +0 there. Block scales may carry a sign or be NaN; they are taken as they are.
///           A tensor scale given in EncodeOptions::given_planes is used instead of the matrix's
///           own: layers that a runtime fuses share one.
///           A matrix so small that its scale underflows to 0 (all zero, ModelOpt and torchao
///           leave it undefined): codes of zero.
/// Accuracy: exact on every target: the bits of each producer's CPU path.
/// Source:   docs/formats/nvfp4.md.
class Nvfp4Format final : public BlockFormat, public std::enable_shared_from_this<Nvfp4Format> {
 public:
  explicit Nvfp4Format(Nvfp4Producer producer);

  static std::shared_ptr<const Nvfp4Format> Make(Nvfp4Producer producer);

  Nvfp4Producer producer() const noexcept { return producer_; }
  /// "tensor_scale", "global_scale", or "" when there is none.
  std::string_view TensorScalePlane() const noexcept;

  std::string Name() const override;
  std::string Summary() const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  const CheckpointForm* Form() const override;

 private:
  ScaleValues ValuesOfScales(const EncodedMatrix& encoded, DecodeRounding rounding) const override;
  float TensorScaleFor(const MatrixView& matrix, const EncodeOptions& options) const;

  Nvfp4Producer producer_;
};

extern const FormatFamily kNvfp4Family;

/// The f32 in a plane of one element. Errors: internal when it is another plane.
float ScalarOf(const Tensor& plane);

/// The scalar scale that `options` gives for plane `name`; nothing when it gives none.
/// Errors: usage unless it is one positive finite f32.
std::optional<float> GivenScale(const Format& format, const EncodeOptions& options,
                                std::string_view name);

}  // namespace assay
