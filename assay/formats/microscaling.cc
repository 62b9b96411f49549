#include "assay/formats/microscaling.h"

#include "assay/base/error.h"
#include "assay/formats/compressed_tensors.h"
#include "assay/formats/gpt_oss.h"
#include "assay/formats/modelopt.h"
#include "assay/numeric/element.h"

namespace assay {
namespace {

constexpr int kMxBlock = 32;

struct Base {
  std::string_view name;
  BlockElement element;
  DType code_dtype;
  std::string_view words;
};

constexpr Base kBases[] = {
    {"mxfp4", BlockElement::kE2M1, DType::kU8, "4-bit e2m1"},
    {"mxfp6e2m3", BlockElement::kE2M3, DType::kU8, "6-bit e2m3"},
    {"mxfp6e3m2", BlockElement::kE3M2, DType::kU8, "6-bit e3m2"},
    {"mxfp8", BlockElement::kE4M3, DType::kF8E4M3, "8-bit e4m3"},
    {"mxfp8e5m2", BlockElement::kE5M2, DType::kF8E5M2, "8-bit e5m2"},
    {"mxint8", BlockElement::kInt8, DType::kI8, "8-bit integer / 64"},
};

const Base& BaseOf(BlockElement element) {
  for (const Base& base : kBases) {
    if (base.element == element) return base;
  }
  ThrowInternal("microscaling: no name for element {}", static_cast<int>(element));
}

struct Suffix {
  std::string_view name;  // "" is the plain name
  MxScaleRule rule;
  MxProducer producer;
};

constexpr Suffix kSuffixes[] = {
    {"", MxScaleRule::kFloor, MxProducer::kOcp},
    {"ceil", MxScaleRule::kCeil, MxProducer::kOcp},
    {"rceil", MxScaleRule::kRCeil, MxProducer::kOcp},
    {"even", MxScaleRule::kEven, MxProducer::kOcp},
    {"ct", MxScaleRule::kCt, MxProducer::kOcp},
    {"compressed-tensors", MxScaleRule::kCt, MxProducer::kCompressedTensors},
    {"modelopt", MxScaleRule::kRCeilLog2, MxProducer::kModelOpt},
};

bool Exists(const Suffix& suffix, BlockElement element) {
  if (suffix.producer == MxProducer::kModelOpt) {
    return element == BlockElement::kE2M1 || element == BlockElement::kE4M3;
  }
  return Defines(suffix.rule, element);
}

std::string NameWith(const Base& base, const Suffix& suffix) {
  return suffix.name.empty() ? std::string(base.name)
                             : fmt::format("{}:{}", base.name, suffix.name);
}

ElementRounding RoundingOf(BlockElement element, MxProducer producer) {
  if (element == BlockElement::kE2M1) {
    if (producer == MxProducer::kCompressedTensors) return ElementRounding::kNearestEvenPlainZero;
    if (producer == MxProducer::kModelOpt) return ElementRounding::kDownZeroNegative;
  }
  return ElementRounding::kNearestEven;
}

/// Half the smallest subnormal of a dtype: quotients up to it round to zero there.
float UnderflowOf(DType dtype) {
  if (dtype == DType::kBF16) return 0x1p-134f;
  if (dtype == DType::kF16) return 0x1p-25f;
  return 0.0f;
}

}  // namespace

MicroscalingFormat::MicroscalingFormat(BlockElement element, MxScaleRule rule, MxProducer producer)
    : BlockFormat(element, kMxBlock, BaseOf(element).code_dtype, DType::kU8),
      rule_(rule),
      producer_(producer) {
  if (!Defines(rule, element)) ThrowInternal("{} with rule {}", BaseOf(element).name, NameOf(rule));
}

std::shared_ptr<const MicroscalingFormat> MicroscalingFormat::Make(BlockElement element,
                                                                   MxScaleRule rule,
                                                                   MxProducer producer) {
  return std::make_shared<const MicroscalingFormat>(element, rule, producer);
}

std::string MicroscalingFormat::Name() const {
  const Base& base = BaseOf(element());
  for (const Suffix& suffix : kSuffixes) {
    if (suffix.rule == rule_ && suffix.producer == producer_) return NameWith(base, suffix);
  }
  ThrowInternal("microscaling: no name for rule {}", NameOf(rule_));
}

std::string MicroscalingFormat::Summary() const {
  const std::string_view encoder = producer_ == MxProducer::kOcp ? ""
                                   : producer_ == MxProducer::kModelOpt
                                       ? ", as ModelOpt encodes"
                                       : ", as compressed-tensors encodes";
  return fmt::format("OCP microscaling: {} elements, a power-of-two scale for every 32 ({}){}",
                     BaseOf(element()).words, NameOf(rule_), encoder);
}

EncodedMatrix MicroscalingFormat::Encode(const MatrixView& matrix,
                                         const EncodeOptions& options) const {
  RequireEncodable(*this, matrix, options);
  const DType dtype = producer_ == MxProducer::kCompressedTensors ? DType::kBF16 : matrix.dtype();
  EncodedMatrix encoded = Allocate(shared_from_this(), matrix, dtype);
  const BlockQuotient quotient{.underflow = UnderflowOf(matrix.dtype())};
  const auto choose = [this](std::span<const uint32_t> amax_bits, std::span<uint8_t> scales,
                             std::span<float> factors) {
    ChooseMxScales(rule_, element(), amax_bits, scales);
    InverseScales(scales, factors);
  };
  EncodePlanes(matrix, options, RoundingOf(element(), producer_), quotient, choose, encoded);
  return encoded;
}

BlockFormat::ScaleValues MicroscalingFormat::ValuesOfScales(const EncodedMatrix& /*encoded*/,
                                                            DecodeRounding /*rounding*/) const {
  ScaleValues values;
  for (size_t byte = 0; byte < values.size(); ++byte) {
    values[byte] = E8M0ToFloat(static_cast<uint8_t>(byte));
  }
  return values;
}

const CheckpointForm* MicroscalingFormat::Form() const {
  switch (element()) {
    case BlockElement::kE2M1:
    case BlockElement::kE2M3:
    case BlockElement::kE4M3:
      if (producer_ == MxProducer::kModelOpt) return ModelOptForm();
      return CompressedTensorsForm(FactsOf(element()).bits < 8);
    case BlockElement::kE3M2:
    case BlockElement::kE5M2:
    case BlockElement::kInt8:
      return nullptr;
  }
  return nullptr;
}

namespace {

FormatPtr ParseMicroscaling(std::string_view name) {
  const size_t colon = name.find(':');
  std::string_view wanted = colon == name.npos ? std::string_view() : name.substr(colon + 1);
  if (colon != name.npos && wanted.empty()) return nullptr;
  if (wanted == "floor") wanted = {};
  for (const Base& base : kBases) {
    if (name.substr(0, colon) != base.name) continue;
    for (const Suffix& suffix : kSuffixes) {
      if (suffix.name == wanted && Exists(suffix, base.element)) {
        return MicroscalingFormat::Make(base.element, suffix.rule, suffix.producer);
      }
    }
  }
  return nullptr;
}

/// Configs of one producer hold several families' formats; they are read once, here.
void RecogniseMicroscaling(const CheckpointSource& source, Recognition& found) {
  RecogniseCompressedTensors(source, found);
  RecogniseModelOpt(source, found);
  RecogniseGptOss(source, found);
}

std::vector<std::string> MicroscalingNames() {
  std::vector<std::string> names;
  for (const Base& base : kBases) {
    for (const Suffix& suffix : kSuffixes) {
      if (Exists(suffix, base.element)) names.push_back(NameWith(base, suffix));
    }
  }
  return names;
}

}  // namespace

const FormatFamily kMicroscalingFamily = {
    .name = "microscaling",
    .grammar =
        "mxfp4 mxfp6e2m3 mxfp6e3m2 mxfp8 mxfp8e5m2 mxint8, with "
        ":ceil :rceil :even :ct :compressed-tensors :modelopt",
    .summary = "OCP microscaling: value = element · 2^(scale − 127), per 32 values of a row",
    .details =
        "value = element · 2^(scale − 127); scale 255 is NaN.\n"
        "Per 32 values of a row: one e8m0 scale byte; elements e2m1, e2m3, e3m2, e4m3, e5m2 or "
        "int8 / 64, nearest even, saturating.\n"
        "Scale exponent for a largest magnitude m: plain names floor(log2 m) - emax (OCP); "
        ":ceil ceil(log2 m) - emax; :rceil ceil(log2(m / max)); :even and :ct round m to the "
        "element's (compressed-tensors' own) mantissa first.\n"
        ":compressed-tensors and :modelopt are those producers' encoders to the bit.\n"
        "codes   U8 [rows, cols · bits / 8], F8_E4M3, F8_E5M2 or I8 [rows, cols]\n"
        "scales  U8 [rows, cols / 32]\n"
        "Written by compressed-tensors, ModelOpt and gpt-oss; read back through their configs. "
        "Refuses NaN and infinity.",
    .parse = ParseMicroscaling,
    .names = MicroscalingNames,
    .recognise = RecogniseMicroscaling,
};

}  // namespace assay
