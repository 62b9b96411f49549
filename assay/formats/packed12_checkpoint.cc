// How packed12 stands in checkpoints, and its line in the catalogue.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/checkpoint_form.h"
#include "assay/formats/packed12.h"

namespace assay {
namespace {

constexpr std::string_view kPlaneInfix = ".p12_";
constexpr std::string_view kShapedPlane = "sm";
constexpr std::array<std::string_view, 5> kPlanes = {"header", "sm", "ex", "escape_indices",
                                                     "escape_values"};

std::string Packed12Tensor(std::string_view weight, std::string_view plane) {
  return fmt::format("{}{}{}", weight, kPlaneInfix, plane);
}

/// NAME → NAME.p12_header, .p12_sm, …: the whole name of the plain tensor stays in front, since
/// any tensor can be packed. The sm plane has the plain tensor's shape, whatever its rank.
class Packed12Form final : public CheckpointForm {
 public:
  std::string TensorName(std::string_view weight_name, std::string_view plane) const override {
    return Packed12Tensor(weight_name, plane);
  }

  Shape StoredShape(const PlaneSpec& plane, const Shape& plain_shape) const override {
    return plane.name == kShapedPlane ? plain_shape : plane.shape;
  }

  std::vector<std::string> DefaultPatterns() const override { return {"*"}; }

  // Reading needs no config; the entry makes loaders that do not know the method refuse the model
  // instead of missing its tensors.
  void WriteConfig(nlohmann::json& config, const Format& /*model_format*/,
                   const std::vector<WrittenWeight>& /*weights*/) const override {
    config["quantization_config"] = {{"quant_method", "packed12"},
                                     {"version", Packed12Format::kVersion}};
  }
};

// A packed tensor as the checkpoint holds it, its matrices cut out on demand.
class StoredStack {
 public:
  // Requires the planes' tensors to be those of `weight`; `source` outlives it.
  StoredStack(const CheckpointSource& source, const FoundWeight& weight)
      : source_(source),
        name_(weight.name),
        format_(weight.format),
        stack_(weight.stack),
        rows_(weight.rows),
        cols_(weight.cols) {}

  EncodedMatrix Matrix(int64_t index) const {
    if (index < 0 || index >= stack_) ThrowInternal("{}: no matrix {}", name_, index);
    if (stack_ == 1) return Load();
    std::call_once(loaded_, [&] {
      EncodedMatrix whole = Load();
      // Escapes are found by binary search, which means nothing in planes that break a rule.
      format_->Validate(whole, name_);
      whole_ = std::move(whole);
    });
    EncodedMatrix matrix{format_, rows_, cols_, DType::kBF16, {}};
    const int64_t num_values = rows_ * cols_;
    matrix.planes.push_back({"header", whole_.Get("header")});
    matrix.planes.push_back(
        {"sm", whole_.Get("sm").As(DType::kU8, {stack_, rows_, cols_}).Slice(index)});
    matrix.planes.push_back({"ex", Codes(index, num_values)});
    AddEscapes(index, num_values, matrix);
    return matrix;
  }

 private:
  EncodedMatrix Load() const {
    EncodedMatrix whole{format_, stack_ * rows_, cols_, DType::kBF16, {}};
    for (const std::string_view plane : kPlanes) {
      const std::string tensor_name = Packed12Tensor(name_, plane);
      if (source_.Find(tensor_name) == nullptr) continue;  // Validate says so
      Tensor tensor = source_.Load(tensor_name);
      if (plane == kShapedPlane) tensor = tensor.As(DType::kU8, {whole.rows, cols_});
      whole.planes.push_back({std::string(plane), std::move(tensor)});
    }
    return whole;
  }

  Tensor Codes(int64_t index, int64_t num_values) const {
    const Tensor& all = whole_.Get("ex");
    if (num_values % 2 == 0) return all.As(DType::kU8, {stack_, num_values / 2}).Slice(index);
    Tensor codes = Tensor::Allocate(DType::kU8, {CeilDiv<int64_t>(num_values, 2)});
    const std::span<std::byte> out = codes.mutable_bytes();
    for (int64_t i = 0; i < num_values; ++i) {
      const auto from = static_cast<size_t>(index * num_values + i);
      const std::byte code = all.bytes()[from / 2] >> (4 * (from % 2)) & std::byte{0xF};
      const auto to = static_cast<size_t>(i);
      out[to / 2] |= code << (4 * (to % 2));
    }
    return codes;
  }

  void AddEscapes(int64_t index, int64_t num_values, EncodedMatrix& matrix) const {
    const std::span<const std::byte> indices = whole_.Get("escape_indices").bytes();
    const std::span<const std::byte> values = whole_.Get("escape_values").bytes();
    const auto first = static_cast<uint64_t>(index * num_values);
    const size_t begin = FirstFrom(indices, first);
    const size_t end = FirstFrom(indices, first + static_cast<uint64_t>(num_values));
    const auto count = static_cast<int64_t>(end - begin);
    Tensor own_indices = Tensor::Allocate(DType::kU32, {count});
    Tensor own_values = Tensor::Allocate(DType::kBF16, {count});
    for (size_t k = begin; k < end; ++k) {
      const auto local = static_cast<uint32_t>(At(indices, k) - first);
      std::memcpy(own_indices.mutable_bytes().data() + 4 * (k - begin), &local, sizeof(local));
    }
    std::ranges::copy(values.subspan(2 * begin, 2 * (end - begin)),
                      own_values.mutable_bytes().begin());
    matrix.planes.push_back({"escape_indices", std::move(own_indices)});
    matrix.planes.push_back({"escape_values", std::move(own_values)});
  }

  static uint32_t At(std::span<const std::byte> indices, size_t k) {
    uint32_t index;
    std::memcpy(&index, indices.data() + 4 * k, sizeof(index));
    return index;
  }

  static size_t FirstFrom(std::span<const std::byte> indices, uint64_t position) {
    size_t low = 0;
    size_t high = indices.size() / 4;
    while (low < high) {
      const size_t middle = low + (high - low) / 2;
      if (At(indices, middle) < position) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  const CheckpointSource& source_;
  std::string name_;
  FormatPtr format_;
  int64_t stack_;
  int64_t rows_;
  int64_t cols_;
  mutable std::once_flag loaded_;
  mutable EncodedMatrix whole_;
};

// Rank 0 and 1 are one row, higher ranks a stack of their last two axes. Nothing at all is one
// matrix without rows, so that no loop runs over 2^62 of them.
FoundWeight WeightOfShape(std::string name, const Shape& shape) {
  FoundWeight weight;
  weight.name = std::move(name);
  weight.format = std::make_shared<Packed12Format>();
  weight.dtype = DType::kBF16;
  const size_t rank = shape.rank();
  const bool is_empty = shape.NumElements() == 0;
  if (rank != 2 || is_empty) weight.plain_shape = shape;
  if (is_empty) return weight;
  weight.cols = rank == 0 ? 1 : shape[rank - 1];
  weight.rows = rank < 2 ? 1 : shape[rank - 2];
  if (rank > 2) {
    weight.stacked = true;
    for (size_t axis = 0; axis + 2 < rank; ++axis) weight.stack *= shape[axis];
  }
  return weight;
}

void RecognisePacked12(const CheckpointSource& source, Recognition& found) {
  const std::string suffix = Packed12Tensor("", kShapedPlane);
  for (const StoredTensor& sm : source.Tensors()) {
    if (!sm.name.ends_with(suffix)) continue;
    const std::string name = sm.name.substr(0, sm.name.size() - suffix.size());
    const auto num_values = sm.shape.CheckedNumElements();
    if (sm.dtype != DType::kU8 || !num_values || *num_values > Packed12Format::kMaxValues) {
      found.notes.push_back(fmt::format("{}: {} {} is no plane of packed12: left as it is", sm.name,
                                        NameOf(sm.dtype), sm.shape.ToString()));
      continue;
    }
    FoundWeight weight = WeightOfShape(name, sm.shape);
    for (const std::string_view plane : kPlanes) {
      if (source.Find(Packed12Tensor(name, plane)) != nullptr) {
        weight.tensor_names.push_back(Packed12Tensor(name, plane));
      }
    }
    weight.load = [stored = std::make_shared<const StoredStack>(source, weight)](int64_t index) {
      return stored->Matrix(index);
    };
    found.weights.push_back(std::move(weight));
  }
}

FormatPtr ParsePacked12(std::string_view name) {
  return name == "packed12" ? std::make_shared<Packed12Format>() : nullptr;
}

std::vector<std::string> Packed12Names() { return {"packed12"}; }

}  // namespace

const CheckpointForm* Packed12Format::Form() const {
  static const Packed12Form form;
  return &form;
}

const FormatFamily kPacked12Family = {
    .name = "packed12",
    .grammar = "packed12",
    .summary = "bf16 in 12 bits, lossless: sign and mantissa whole, exponent as a 4-bit code",
    .details =
        "Every bf16 bit pattern comes back, NaN payloads and -0 included.\n"
        "A weight is one byte (sign, 7 bits of mantissa) and a 4-bit code of its exponent: code 0 "
        "is exponent 0 (zeros and subnormals), codes 1 to 15 are the exponents B to B+14, B chosen "
        "per tensor so that most fit. Any other exponent is an escape: index and whole word, 6 "
        "bytes.\n"
        "bytes = 4 + 1.5 n + 6 escapes\n"
        "header          U8 [4]      B, version 1, 0, 0\n"
        "sm              U8          the tensor's own shape, any rank\n"
        "ex              U8 [n / 2]  even element in the low nibble\n"
        "escape_indices  U32 [E]     ascending\n"
        "escape_values   BF16 [E]\n"
        "Stored as NAME.p12_header, NAME.p12_sm, … A tensor that would not shrink (more than 8 % "
        "escapes, or too small) is kept as bf16. Written and read by Assay.",
    .parse = ParsePacked12,
    .names = Packed12Names,
    .recognise = RecognisePacked12,
};

}  // namespace assay
