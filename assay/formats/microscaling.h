#pragma once

#include "assay/formats/block_format.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/mx_scale_rules.h"

namespace assay {

/// Whose encoder: which zeros and ties it codes how, and what it decodes to. The bytes mean the
/// same to every decoder.
enum class MxProducer : uint8_t {
  kOcp,  ///< nearest even, the sign of zero kept; decoded values in the source's dtype
  kCompressedTensors,  ///< fp4 zeros of either sign take code 0; decodes to bf16
  kModelOpt,           ///< fp4 ties toward zero, zeros take code 8
};

/// OCP Microscaling: 32 values of a row share one power-of-two scale; value = element · 2^(s−127).
///
/// Layout:   planes "codes" and "scales" of BlockFormat; "scales" are e8m0 bytes stored as U8.
///           "codes" is U8 for 4 and 6 bits (6: four codes in three bytes, least significant bit
///           first), F8_E4M3, F8_E5M2 or I8 for 8 bits.
/// Values:   elements round to nearest even from the exact quotient and saturate; scale 255 decodes
///           to NaN. The scale rule is MxScaleRule; plain names mean floor, OCP's own.
/// Accuracy: exact on every target: the bits of each producer's CPU path.
/// Source:   OCP Microscaling Formats 1.0; docs/formats/microscaling.md.
class MicroscalingFormat final : public BlockFormat,
                                 public std::enable_shared_from_this<MicroscalingFormat> {
 public:
  /// Requires Defines(rule, element). Errors: internal.
  MicroscalingFormat(BlockElement element, MxScaleRule rule, MxProducer producer);

  static std::shared_ptr<const MicroscalingFormat> Make(BlockElement element,
                                                        MxScaleRule rule = MxScaleRule::kFloor,
                                                        MxProducer producer = MxProducer::kOcp);

  MxScaleRule rule() const noexcept { return rule_; }
  MxProducer producer() const noexcept { return producer_; }

  std::string Name() const override;
  std::string Summary() const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  const CheckpointForm* Form() const override;

 private:
  ScaleValues ValuesOfScales(const EncodedMatrix& encoded, DecodeRounding rounding) const override;

  MxScaleRule rule_;
  MxProducer producer_;
};

extern const FormatFamily kMicroscalingFamily;

}  // namespace assay
