// Any planes against every format of the catalogue: what Validate accepts must decode, and nothing
// but assay::Error may be thrown. Then the same bytes as values: what encodes must validate.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "assay/base/error.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"

namespace assay {
namespace {

/// Reads the input from the front; zeros after its end.
class Input {
 public:
  Input(const uint8_t* data, size_t num_bytes) : rest_(data, num_bytes) {}

  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }

  void Fill(std::span<std::byte> out) {
    const size_t taken = std::min(out.size(), rest_.size());
    if (taken != 0) std::memcpy(out.data(), rest_.data(), taken);
    rest_ = rest_.subspan(taken);
  }

 private:
  std::span<const uint8_t> rest_;
};

constexpr int64_t kMaxValues = 1 << 14;
constexpr DType kWeightTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

const std::vector<FormatPtr>& AllFormats() {
  static const std::vector<FormatPtr> formats = [] {
    std::vector<FormatPtr> all;
    for (const FormatFamily* family : FormatCatalogue()) {
      for (const std::string& name : family->names()) all.push_back(Format::Parse(name));
    }
    return all;
  }();
  return formats;
}

/// A plane that is not the one asked for: `how` chooses in which way.
PlaneSpec Spoiled(PlaneSpec spec, uint8_t how) {
  std::vector<int64_t> dims(spec.shape.dims().begin(), spec.shape.dims().end());
  switch (how % 8) {
    case 1:
      if (!dims.empty()) dims.back() = std::max<int64_t>(0, dims.back() - 1);
      break;
    case 2:
      if (!dims.empty()) dims.front() += 1;
      break;
    case 3:
      dims.push_back(1);
      break;
    case 4:
      dims.clear();
      break;
    case 5:
      spec.dtype = static_cast<DType>(how / 8 % static_cast<int>(DType::kUnknown));
      break;
    case 6:
      if (!dims.empty()) dims.back() = how / 8;
      break;
    default:
      break;
  }
  spec.shape = Shape(std::move(dims));
  return spec;
}

/// After Validate, decoding may refuse a code that has no value, but never fail inside.
template <typename Action>
bool Accepts(const Action& action) {
  try {
    action();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::kInternal) __builtin_trap();
    return false;
  }
}

void DecodeAll(const EncodedMatrix& encoded) {
  const Format& format = *encoded.format;
  std::vector<float> rows(static_cast<size_t>(encoded.rows * encoded.cols));
  for (const DecodeRounding rounding : {DecodeRounding::kCheckpoint, DecodeRounding::kNone}) {
    Accepts([&] { format.DecodeRows(encoded, 0, encoded.rows, rows, rounding); });
    if (encoded.rows > 1) {
      const auto one = std::span(rows).first(static_cast<size_t>(encoded.cols));
      Accepts([&] { format.DecodeRows(encoded, encoded.rows - 1, 1, one, rounding); });
    }
  }
  std::vector<std::byte> bytes(rows.size() * 2);
  Accepts([&] { format.DecodeRowsTo(encoded, 0, encoded.rows, DType::kBF16, bytes); });
}

void TryPlanes(const FormatPtr& format, int64_t rows, int64_t cols, DType dtype, Input input) {
  EncodedMatrix encoded{format, rows, cols, dtype, {}};
  if (!format->WhyNot(rows, cols, dtype)) {
    for (PlaneSpec& spec : format->Layout(rows, cols, dtype)) {
      const uint8_t how = input.Byte();
      if (how % 8 == 7 && how > 200) continue;  // the plane is missing
      spec = Spoiled(std::move(spec), how);
      const auto num_bytes = spec.shape.CheckedNumBytes(spec.dtype);
      if (!num_bytes || *num_bytes > 16 * kMaxValues) continue;
      Tensor tensor = Tensor::Allocate(spec.dtype, std::move(spec.shape));
      input.Fill(tensor.mutable_bytes());
      encoded.planes.push_back({std::move(spec.name), std::move(tensor)});
    }
  }
  if (Accepts([&] { format->Validate(encoded, "fuzz"); })) DecodeAll(encoded);
}

void TryValues(const FormatPtr& format, int64_t rows, int64_t cols, DType dtype, Input input) {
  if (!format->CanEncode() || format->WhyNot(rows, cols, dtype)) return;
  Tensor values = Tensor::Allocate(dtype, Shape{rows, cols});
  input.Fill(values.mutable_bytes());
  EncodedMatrix encoded;
  if (!Accepts([&] {
        encoded = format->Encode(MatrixView(values.view(), rows, cols), {.tensor_name = "fuzz"});
      })) {
    return;
  }
  if (!Accepts([&] { format->Validate(encoded, "fuzz"); })) __builtin_trap();
  DecodeAll(encoded);
}

}  // namespace
}  // namespace assay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace assay;
  Input input(data, num_bytes);
  const auto& formats = AllFormats();
  const size_t which = input.Byte() | static_cast<size_t>(input.Byte()) << 8;
  const FormatPtr& format = formats[which % formats.size()];
  const int64_t rows = input.Byte() % 9;
  // Most formats want multiples of 16 to 128; any other width must be refused.
  constexpr int64_t kSteps[] = {1, 2, 8, 16, 32, 64, 128, 256};
  const uint8_t step = input.Byte();
  const int64_t cols = kSteps[step % 8] * (step / 8 + int64_t{input.Byte()} % 4);
  const DType dtype = kWeightTypes[input.Byte() % 3];
  if (rows * cols > kMaxValues) return 0;
  TryPlanes(format, rows, cols, dtype, input);
  TryValues(format, rows, cols, dtype, input);
  return 0;
}
