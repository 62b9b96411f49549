#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/compressed_tensors_config.h"
#include "assay/formats/int_config.h"
#include "assay/formats/int_packed.h"
#include "assay/formats/planes.h"

namespace assay {
namespace {

/// "0.9.4" → {0, 9}; nothing when it is no such text.
std::optional<std::pair<int, int>> VersionOf(const std::string& text) {
  char* end = nullptr;
  const long major = std::strtol(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '.') return std::nullopt;
  const char* rest = end + 1;
  const long minor = std::strtol(rest, &end, 10);
  if (end == rest) return std::nullopt;
  return std::pair{static_cast<int>(major), static_cast<int>(minor)};
}

/// Which packing a row of `words` words of `cols` codes has. Widths that divide 32 have one; of the
/// others, the word count tells, and where it does not the library's version: 0.9 still packed
/// whole fields, 0.20 packs a stream. Nothing when neither decides.
std::optional<IntStorage> StorageOf(int64_t cols, int bits, int64_t words,
                                    const std::string& version) {
  const int64_t stream = IntPackedFormat::WordsFor(cols, bits, IntStorage::kStream);
  const int64_t legacy = IntPackedFormat::WordsFor(cols, bits, IntStorage::kLegacy);
  if (32 % bits == 0) return IntStorage::kStream;
  if (stream != legacy) return words == legacy ? IntStorage::kLegacy : IntStorage::kStream;
  const auto at = VersionOf(version);
  if (at && *at <= std::pair{0, 9}) return IntStorage::kLegacy;
  if (at && *at >= std::pair{0, 20}) return IntStorage::kStream;
  return std::nullopt;
}

std::pair<int64_t, int64_t> ShapeIn(const CheckpointSource& source, const StoredTensor& stored) {
  if (stored.dtype != DType::kI64 || stored.shape != Shape{2}) {
    ThrowInput("{}: tensor \"{}\": expected I64 [2], found {} {}", source.Path(), stored.name,
               NameOf(stored.dtype), stored.shape.ToString());
  }
  int64_t dims[2];
  std::memcpy(dims, source.Load(stored.name).bytes().data(), sizeof dims);
  if (dims[0] < 0 || dims[1] < 1 || !Shape({dims[0], dims[1]}).CheckedNumBytes(DType::kF32)) {
    ThrowInput("{}: tensor \"{}\": no shape of a weight: [{}, {}]", source.Path(), stored.name,
               dims[0], dims[1]);
  }
  return {dims[0], dims[1]};
}

void AddModule(const CheckpointSource& source, const CompressedTensorsConfig& config,
               const std::string& base, const StoredTensor& codes, bool packed,
               Recognition& found) {
  const CompressedTensorsGroup* group = config.GroupOf(base);
  if (group == nullptr || group->weights.type != "int") return;
  const CompressedTensorsWeights& weights = group->weights;
  const StoredTensor* scales = source.Find(base + ".weight_scale");
  const StoredTensor* shape = source.Find(base + ".weight_shape");
  if (scales == nullptr || (packed && shape == nullptr)) {
    found.notes.push_back(
        fmt::format("{}: not read: {} is missing", codes.name,
                    scales == nullptr ? base + ".weight_scale" : base + ".weight_shape"));
    return;
  }
  if (weights.num_bits < 1 || weights.num_bits > 8 || (!packed && weights.num_bits != 8)) {
    ThrowInput("{}: config: group \"{}\": {} bits; expected {}", source.Path(), group->name,
               weights.num_bits, packed ? "1 to 8" : "8");
  }
  if (codes.shape.rank() != 2 || scales->shape.rank() != 2) {
    found.notes.push_back(fmt::format("{}: not read: codes {} and scales {} are no matrices",
                                      codes.name, codes.shape.ToString(),
                                      scales->shape.ToString()));
    return;
  }
  const auto bits = static_cast<int>(weights.num_bits);
  const auto [rows, cols] =
      packed ? ShapeIn(source, *shape) : std::pair{codes.shape[0], codes.shape[1]};
  const int64_t groups = scales->shape[1];
  if (cols < 1 || groups < 1 || cols % groups != 0) {
    ThrowInput("{}: tensor \"{}\": {} scales a row do not divide {} columns", source.Path(),
               scales->name, groups, cols);
  }
  const std::optional<IntStorage> storage =
      packed ? StorageOf(cols, bits, codes.shape[1], config.version()) : IntStorage::kBytes;
  if (!storage) {
    found.notes.push_back(fmt::format(
        "{}: not read: {}-bit fields of compressed-tensors {} may or may not straddle words",
        codes.name, bits, config.version().empty() ? "(no version)" : config.version()));
    return;
  }
  const StoredTensor* g_idx = source.Find(base + ".weight_g_idx");
  if (g_idx != nullptr) {
    found.notes.push_back(
        fmt::format("{}: not read: groups by {} (activation order)", codes.name, g_idx->name));
    return;
  }
  const auto format = std::make_shared<const IntPackedFormat>(
      bits, groups == 1 && weights.group_size == 0 ? IntPackedFormat::kWholeRow : cols / groups,
      weights.symmetric, *storage);
  if (const auto reason = format->WhyNot(rows, cols, scales->dtype)) {
    ThrowInput("{}: tensor \"{}\": no {} weight: {}", source.Path(), codes.name, format->Name(),
               *reason);
  }
  const std::vector<PlaneSpec> layout = format->Layout(rows, cols, scales->dtype);
  RequireStored(source, codes, layout[0]);
  RequireStored(source, *scales, layout[1]);
  std::vector<std::pair<std::string, std::string>> planes = {{"codes", codes.name},
                                                             {"scales", scales->name}};
  if (!weights.symmetric) {
    const StoredTensor* zeros = source.Find(base + ".weight_zero_point");
    if (zeros == nullptr) {
      ThrowInput(
          "{}: tensor \"{}\": the config says asymmetric, but {}.weight_zero_point is missing",
          source.Path(), codes.name, base);
    }
    RequireStored(source, *zeros, layout[2]);
    planes.emplace_back("zero_points", zeros->name);
  }
  if (packed) planes.emplace_back("shape", shape->name);
  found.weights.push_back(
      StoredWeight(source, base + ".weight", format, rows, cols, scales->dtype, std::move(planes)));
}

class IntForm final : public CheckpointForm {
 public:
  explicit IntForm(IntStorage storage) : storage_(storage) {}

  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    const std::string name(weight_name);
    if (plane == "scales") return name + "_scale";
    if (plane == "zero_points") return name + "_zero_point";
    if (plane == "shape") return name + "_shape";
    return storage_ == IntStorage::kBytes ? name : name + "_packed";
  }

  void WriteConfig(nlohmann::json& config, const Format& model_format,
                   const std::vector<WrittenWeight>& weights) const override {
    const auto& format = dynamic_cast<const IntPackedFormat&>(model_format);
    const bool whole_row = format.group_size() == IntPackedFormat::kWholeRow;
    const char* name = storage_ == IntStorage::kBytes ? "int-quantized" : "pack-quantized";
    config["quantization_config"] = CompressedTensorsQuantization(
        name,
        {{"num_bits", format.bits()},
         {"type", "int"},
         {"symmetric", format.symmetric()},
         {"group_size", whole_row ? nlohmann::json() : nlohmann::json(format.group_size())},
         {"strategy", whole_row ? "channel" : "group"},
         {"dynamic", false}},
        weights);
  }

 private:
  IntStorage storage_;
};

}  // namespace

void RecogniseIntPacked(const CheckpointSource& source, Recognition& found) {
  const auto config = CompressedTensorsConfig::Read(source);
  if (!config) return;
  for (const StoredTensor& tensor : source.Tensors()) {
    if (const auto base = BaseOf(tensor.name, ".weight_packed"); !base.empty()) {
      AddModule(source, *config, std::string(base), tensor, true, found);
    } else if (tensor.dtype == DType::kI8) {
      const auto plain = BaseOf(tensor.name, ".weight");
      if (!plain.empty()) AddModule(source, *config, std::string(plain), tensor, false, found);
    }
  }
}

const CheckpointForm* IntPackedForm(IntStorage storage) {
  static const IntForm kPacked(IntStorage::kStream);
  static const IntForm kBytes(IntStorage::kBytes);
  return storage == IntStorage::kBytes ? &kBytes : &kPacked;
}

}  // namespace assay
