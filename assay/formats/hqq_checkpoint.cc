#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/hqq.h"
#include "assay/formats/int_config.h"

namespace assay {
namespace {

constexpr int64_t kLongestText = 64;  ///< "torch.bfloat16" is the longest in use

/// The meta tensors of one module, P.nbits and the like.
class Meta {
 public:
  Meta(const CheckpointSource& source, std::string base)
      : source_(source), base_(std::move(base)) {}

  const StoredTensor* Find(const char* key) const { return source_.Find(base_ + "." + key); }

  /// U8 characters. Empty when absent.
  std::string Text(const char* key) const {
    const StoredTensor* stored = Find(key);
    if (stored == nullptr) return "";
    if (stored->dtype != DType::kU8 || stored->shape.rank() != 1 ||
        stored->shape[0] > kLongestText) {
      Fail(*stored, "expected a few U8 characters");
    }
    const Tensor bytes = source_.Load(stored->name);
    return {reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()};
  }

  /// An I32 or U8 scalar; nothing when absent.
  std::optional<int64_t> Number(const char* key) const {
    const StoredTensor* stored = Find(key);
    if (stored == nullptr) return std::nullopt;
    if (stored->shape.CheckedNumElements() != 1) Fail(*stored, "expected one number");
    const Tensor bytes = source_.Load(stored->name);
    if (stored->dtype == DType::kU8) return static_cast<int64_t>(bytes.bytes()[0]);
    if (stored->dtype != DType::kI32) Fail(*stored, "expected I32 or U8");
    int32_t value = 0;
    std::memcpy(&value, bytes.bytes().data(), sizeof value);
    return value;
  }

  /// I64 [2], the shape of the weight.
  std::pair<int64_t, int64_t> WeightShape() const {
    const StoredTensor* stored = Find("shape");
    if (stored == nullptr || stored->dtype != DType::kI64 || stored->shape != Shape{2}) {
      ThrowInput("{}: tensor \"{}.shape\": expected I64 [2]", source_.Path(), base_);
    }
    int64_t dims[2];
    std::memcpy(dims, source_.Load(stored->name).bytes().data(), sizeof dims);
    return {dims[0], dims[1]};
  }

  [[noreturn]] void Fail(const StoredTensor& stored, std::string_view what) const {
    ThrowInput("{}: tensor \"{}\": {}", source_.Path(), stored.name, what);
  }

 private:
  const CheckpointSource& source_;
  std::string base_;
};

constexpr std::array<std::pair<std::string_view, int>, 5> kPackings = {
    {{"8bit_u8", 8}, {"4bit_u8", 4}, {"3bit_32", 3}, {"2bit_u8", 2}, {"1bit_u8", 1}}};

void AddModule(const CheckpointSource& source, const StoredTensor& codes, Recognition& found) {
  const std::string base(BaseOf(codes.name, ".W_q"));
  const Meta meta(source, base);
  const StoredTensor* scale = meta.Find("scale");
  const StoredTensor* zero = meta.Find("zero");
  if (scale == nullptr || zero == nullptr) {
    const bool quantised = meta.Find("scale_q") != nullptr || meta.Find("zero_q") != nullptr;
    found.notes.push_back(fmt::format(
        "{}: not read: {}", codes.name,
        quantised ? "its scales or zeros are quantised themselves, which hqq 0.2 no longer writes"
                  : "scale or zero is missing"));
    return;
  }
  const std::string packing = meta.Text("packing");
  int bits = 0;
  for (const auto& [name, width] : kPackings) {
    if (packing == name) bits = width;
  }
  const std::string compute = meta.Text("compute_dtype");
  const std::optional<DType> dtype = compute.empty() ? scale->dtype : TorchDType(compute);
  if (bits == 0 || !dtype || *dtype != scale->dtype) {
    ThrowInput("{}: tensor \"{}\": packing \"{}\" with compute_dtype \"{}\" and scales of {}",
               source.Path(), codes.name, packing, compute, NameOf(scale->dtype));
  }
  const int64_t axis = meta.Number("axis").value_or(1);
  const int64_t group_size = meta.Number("group_size").value_or(HqqFormat::kNoGroups);
  if ((axis != 0 && axis != 1) || group_size < 0) {
    ThrowInput("{}: tensor \"{}\": axis {}, group_size {}", source.Path(), codes.name, axis,
               group_size);
  }
  const auto format = std::make_shared<const HqqFormat>(bits, group_size, static_cast<int>(axis));
  const auto [rows, cols] = meta.WeightShape();
  if (const auto reason = format->WhyNot(rows, cols, *dtype)) {
    ThrowInput("{}: tensor \"{}\": no {} weight: {}", source.Path(), codes.name, format->Name(),
               *reason);
  }
  const std::vector<PlaneSpec> layout = format->Layout(rows, cols, *dtype);
  // view_as_float keeps the same bytes under the compute dtype.
  if (codes.shape.CheckedNumBytes(codes.dtype) !=
      layout[0].shape.CheckedNumBytes(layout[0].dtype)) {
    ThrowInput("{}: tensor \"{}\": expected the bytes of {} {}, found {} {}", source.Path(),
               codes.name, NameOf(layout[0].dtype), layout[0].shape.ToString(), NameOf(codes.dtype),
               codes.shape.ToString());
  }
  RequireStored(source, *scale, layout[1]);
  RequireStored(source, *zero, layout[2]);
  FoundWeight weight =
      StoredWeight(source, base + ".weight", format, rows, cols, *dtype,
                   {{"codes", codes.name}, {"scale", scale->name}, {"zero", zero->name}});
  for (const char* key :
       {"nbits", "group_size", "shape", "axis", "packing", "unpack_view_dtype", "view_as_float",
        "compute_dtype", "quant_scale", "quant_zero", "channel_wise", "optimize", "round_zero",
        "offload_meta", "stores_quant_config", "encoded_state_dict"}) {
    if (meta.Find(key) != nullptr) weight.tensor_names.push_back(base + "." + key);
  }
  weight.load = [load = weight.load, codes_spec = layout[0]](int64_t index) {
    EncodedMatrix encoded = load(index);
    encoded.planes[0].tensor = encoded.planes[0].tensor.As(codes_spec.dtype, codes_spec.shape);
    return encoded;
  };
  found.weights.push_back(std::move(weight));
}

}  // namespace

void RecogniseHqq(const CheckpointSource& source, Recognition& found) {
  for (const StoredTensor& tensor : source.Tensors()) {
    if (!BaseOf(tensor.name, ".W_q").empty()) AddModule(source, tensor, found);
  }
}

}  // namespace assay
