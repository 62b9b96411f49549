#include "assay/formats/gptq_checkpoint.h"

#include <cstring>
#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/gptq.h"
#include "assay/formats/int_config.h"

namespace assay {
namespace {

std::optional<GptqLayout> LayoutOf(std::string_view checkpoint_format) {
  if (checkpoint_format == "gptq") return GptqLayout::kV1;
  if (checkpoint_format == "gptq_v2") return GptqLayout::kV2;
  if (checkpoint_format == "gptq_p") return GptqLayout::kPlanar;
  return std::nullopt;
}

/// g_idx of files that leave it out: input k belongs to group k / group_size.
Tensor DefaultGroups(int64_t cols, int64_t group_size) {
  Tensor groups = Tensor::Allocate(DType::kI32, Shape{cols});
  const std::span<int32_t> values = groups.mutable_as<int32_t>();
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = static_cast<int32_t>(static_cast<int64_t>(k) / group_size);
  }
  return groups;
}

struct Settings {
  int64_t bits;
  int64_t group_size;  ///< kWholeAxis for one group
  GptqLayout layout;
};

void AddModule(const CheckpointSource& source, const Settings& said, const StoredTensor& qweight,
               Recognition& found) {
  const std::string base(BaseOf(qweight.name, ".qweight"));
  const StoredTensor* qzeros = source.Find(base + ".qzeros");
  const StoredTensor* scales = source.Find(base + ".scales");
  const StoredTensor* g_idx = source.Find(base + ".g_idx");
  if (qzeros == nullptr || scales == nullptr) {
    found.notes.push_back(fmt::format("{}: not read: {} is missing", qweight.name,
                                      qzeros == nullptr ? base + ".qzeros" : base + ".scales"));
    return;
  }
  if (qweight.shape.rank() != 2 || scales->shape.rank() != 2 ||
      (g_idx != nullptr && g_idx->shape.rank() != 1)) {
    ThrowInput("{}: tensor \"{}\": expected matrices and a vector g_idx, found {} and scales {}",
               source.Path(), qweight.name, qweight.shape.ToString(), scales->shape.ToString());
  }
  const int64_t rows = scales->shape[1];
  const auto stored_bits = CheckedMul(qweight.shape[0], int64_t{32});
  if (!stored_bits || *stored_bits == 0) {
    ThrowInput("{}: tensor \"{}\": shape {} holds no codes", source.Path(), qweight.name,
               qweight.shape.ToString());
  }
  std::vector<std::string> notes;
  int64_t bits = said.bits;
  const int64_t cols = g_idx != nullptr ? g_idx->shape[0] : *stored_bits / bits;
  if (g_idx != nullptr && cols > 0 && CeilDiv(cols * bits, int64_t{32}) != qweight.shape[0] &&
      *stored_bits % cols == 0 && GptqFormat::Supports(*stored_bits / cols, said.layout)) {
    bits = *stored_bits / cols;  // "dynamic" overrides give single modules other widths
    notes.push_back(
        fmt::format("config says {} bits, planes hold {}: read as {}", said.bits, bits, bits));
  }
  const auto format =
      std::make_shared<const GptqFormat>(static_cast<int>(bits), said.group_size, said.layout);
  if (const auto reason = format->WhyNot(rows, cols, scales->dtype)) {
    ThrowInput("{}: tensor \"{}\": no {} weight: {}", source.Path(), qweight.name, format->Name(),
               *reason);
  }
  const std::vector<PlaneSpec> layout = format->Layout(rows, cols, scales->dtype);
  std::vector<std::pair<std::string, std::string>> planes = {
      {"qweight", qweight.name}, {"qzeros", qzeros->name}, {"scales", scales->name}};
  RequireStored(source, qweight, layout[0]);
  RequireStored(source, *qzeros, layout[1]);
  RequireStored(source, *scales, layout[2]);
  if (g_idx != nullptr) {
    RequireStored(source, *g_idx, layout[3]);
    planes.emplace_back("g_idx", g_idx->name);
  }
  FoundWeight weight =
      StoredWeight(source, base + ".weight", format, rows, cols, scales->dtype, std::move(planes));
  weight.notes = std::move(notes);
  if (g_idx == nullptr) {
    const int64_t group_size = said.group_size == GptqFormat::kWholeAxis ? cols : said.group_size;
    weight.load = [load = weight.load, cols, group_size](int64_t index) {
      EncodedMatrix encoded = load(index);
      encoded.planes.push_back({"g_idx", DefaultGroups(cols, group_size)});
      return encoded;
    };
  }
  found.weights.push_back(std::move(weight));
}

}  // namespace

void RecogniseGptq(const CheckpointSource& source, Recognition& found) {
  const nlohmann::json* config = IntConfig(source, "gptq", "quantize_config.json");
  if (config == nullptr) return;
  const std::string checkpoint_format = StringMember(
      source, *config, "checkpoint_format", StringMember(source, *config, "format", "gptq"));
  const std::optional<GptqLayout> layout = LayoutOf(checkpoint_format);
  if (!layout || config->value("is_marlin_format", nlohmann::json()) == true) {
    found.notes.push_back(fmt::format(
        "GPTQ weights are not read: checkpoint_format \"{}\" is a run-time permutation; expected "
        "gptq, gptq_v2 or gptq_p",
        layout ? "marlin" : checkpoint_format));
    return;
  }
  Settings settings{IntMember(source, *config, "bits", 4),
                    IntMember(source, *config, "group_size", 128), *layout};
  if (settings.group_size == -1) settings.group_size = GptqFormat::kWholeAxis;
  if (!GptqFormat::Supports(settings.bits, settings.layout) || settings.group_size < 0) {
    ThrowInput("{}: config: {} bits in groups of {}: no GPTQ format of checkpoint_format \"{}\"",
               source.Path(), settings.bits, settings.group_size, checkpoint_format);
  }
  for (const StoredTensor& tensor : source.Tensors()) {
    if (!BaseOf(tensor.name, ".qweight").empty()) AddModule(source, settings, tensor, found);
  }
}

}  // namespace assay
