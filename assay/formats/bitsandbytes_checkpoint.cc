#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/bitsandbytes.h"
#include "assay/formats/int_config.h"

namespace assay {
namespace {

constexpr size_t kLongestState = 4096;  ///< a quant_state is about 170 bytes

/// The JSON in P.weight.quant_state.bitsandbytes__*.
struct State {
  int64_t block = 0;
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::optional<float> nested_offset;
};

State ReadState(const CheckpointSource& source, const StoredTensor& stored) {
  const auto fail = [&](std::string_view what) {
    ThrowInput("{}: tensor \"{}\": {}", source.Path(), stored.name, what);
  };
  if (stored.dtype != DType::kU8 || stored.shape.rank() != 1 ||
      static_cast<size_t>(stored.shape[0]) > kLongestState) {
    fail("expected the bytes of a small JSON object");
  }
  const Tensor bytes = source.Load(stored.name);
  const auto* text = reinterpret_cast<const char*>(bytes.bytes().data());
  const nlohmann::json json = nlohmann::json::parse(text, text + bytes.bytes().size(), nullptr,
                                                    /*allow_exceptions=*/false);
  if (!json.is_object()) fail("expected a JSON object");
  State state;
  state.block = IntMember(source, json, "blocksize", 0);
  const auto dtype = TorchDType(StringMember(source, json, "dtype", ""));
  if (!dtype) fail("dtype: expected float32, float16 or bfloat16");
  state.dtype = *dtype;
  if (!BitsAndBytesFormat::SupportsBlock(state.block)) {
    fail("blocksize: expected a power of two from 32 to 4096");
  }
  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array() || shape->size() != 2 ||
      !(*shape)[0].is_number_integer() || !(*shape)[1].is_number_integer()) {
    fail("shape: expected two integers");
  }
  state.rows = (*shape)[0].get<int64_t>();
  state.cols = (*shape)[1].get<int64_t>();
  if (json.contains("nested_blocksize")) {
    if (IntMember(source, json, "nested_blocksize", 0) != BitsAndBytesFormat::kNestedBlock) {
      fail("nested_blocksize: expected 256");
    }
    const auto offset = json.find("nested_offset");
    if (offset == json.end() || !offset->is_number()) fail("nested_offset: expected a number");
    state.nested_offset = static_cast<float>(offset->get<double>());
  }
  return state;
}

void AddWeight(const CheckpointSource& source, BitsAndBytesFormat::Table table,
               const std::string& name, const StoredTensor& stored_state, Recognition& found) {
  const State state = ReadState(source, stored_state);
  const bool nested = state.nested_offset.has_value();
  const auto format = std::make_shared<const BitsAndBytesFormat>(table, state.block, nested);
  if (const auto reason = format->WhyNot(state.rows, state.cols, state.dtype)) {
    ThrowInput("{}: tensor \"{}\": no {} weight: {}", source.Path(), stored_state.name,
               format->Name(), *reason);
  }
  std::vector<std::pair<std::string, std::string>> planes;
  for (const PlaneSpec& spec : format->Layout(state.rows, state.cols, state.dtype)) {
    if (spec.name == "nested_offset") continue;
    const std::string suffix = spec.name == "codes"          ? ""
                               : spec.name == "table"        ? ".quant_map"
                               : spec.name == "nested_table" ? ".nested_quant_map"
                                                             : "." + spec.name;
    const StoredTensor* stored = source.Find(name + suffix);
    if (stored == nullptr) {
      ThrowInput("{}: tensor \"{}\": {} is missing", source.Path(), name, name + suffix);
    }
    // Another quant_storage keeps the same bytes under another dtype and shape.
    if (spec.name != "codes") {
      RequireStored(source, *stored, spec);
    } else if (stored->shape.CheckedNumBytes(stored->dtype) != spec.shape[0]) {
      ThrowInput("{}: tensor \"{}\": expected {} bytes of codes, found {} {}", source.Path(),
                 stored->name, spec.shape[0], NameOf(stored->dtype), stored->shape.ToString());
    }
    planes.emplace_back(spec.name, stored->name);
  }
  FoundWeight weight =
      StoredWeight(source, name, format, state.rows, state.cols, state.dtype, std::move(planes));
  weight.tensor_names.push_back(stored_state.name);
  weight.load = [load = weight.load, state](int64_t index) {
    EncodedMatrix encoded = load(index);
    const std::vector<PlaneSpec> layout =
        encoded.format->Layout(state.rows, state.cols, state.dtype);
    encoded.planes[0].tensor = encoded.planes[0].tensor.As(layout[0].dtype, layout[0].shape);
    if (state.nested_offset) {
      Tensor offset = Tensor::Allocate(DType::kF32, Shape{});
      offset.mutable_as<float>()[0] = *state.nested_offset;
      encoded.planes.push_back({"nested_offset", std::move(offset)});
    }
    return encoded;
  };
  found.weights.push_back(std::move(weight));
}

}  // namespace

void RecogniseBitsAndBytes(const CheckpointSource& source, Recognition& found) {
  for (const StoredTensor& tensor : source.Tensors()) {
    if (const auto nf4 = BaseOf(tensor.name, ".quant_state.bitsandbytes__nf4"); !nf4.empty()) {
      AddWeight(source, BitsAndBytesFormat::Table::kNf4, std::string(nf4), tensor, found);
    }
    if (const auto fp4 = BaseOf(tensor.name, ".quant_state.bitsandbytes__fp4"); !fp4.empty()) {
      AddWeight(source, BitsAndBytesFormat::Table::kFp4, std::string(fp4), tensor, found);
    }
  }
}

}  // namespace assay
