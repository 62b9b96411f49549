// Any configs and tensor lists against the recogniser of every family: what is recognised must
// load, validate or be refused, and decode; no tensor may be claimed twice.
//
// The input is text. A line "config.json {…}" is a side file; any other line is a tensor:
// name, dtype, dimensions ("a.weight U32 8 16"); a type of ggml instead of the dtype makes the
// bytes its blocks ("a.weight Q4_K 8 144"). Bytes of tensors repeat a pattern of their name.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "assay/base/error.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/ggml_type.h"
#include "tests/support/memory_checkpoint.h"

namespace assay {
namespace {

constexpr int64_t kMaxTensorBytes = 1 << 16;
constexpr size_t kMaxTensors = 40;

std::string_view TakeUntil(std::string_view& text, char end) {
  const size_t position = std::min(text.find(end), text.size());
  const std::string_view taken = text.substr(0, position);
  text.remove_prefix(std::min(text.size(), position + 1));
  return taken;
}

void AddTensor(std::string_view line, test::MemoryCheckpoint& checkpoint) {
  const std::string name(TakeUntil(line, ' '));
  const std::string_view type = TakeUntil(line, ' ');
  const GgmlType* ggml = FindGgmlType(type);
  const bool blocks = ggml != nullptr && !ggml->dtype;
  const auto dtype = blocks ? std::optional(DType::kU8) : ParseDType(type);
  if (name.empty() || !dtype) return;
  std::vector<int64_t> dims;
  while (!line.empty()) {
    const std::string_view word = TakeUntil(line, ' ');
    int64_t dim = 0;
    std::from_chars(word.data(), word.data() + word.size(), dim);
    if (dim < 0 || dims.size() == Shape::kMaxRank) return;
    dims.push_back(dim);
  }
  const Shape shape(std::move(dims));
  const auto num_bytes = shape.CheckedNumBytes(*dtype);
  if (!num_bytes || *num_bytes > kMaxTensorBytes) return;
  Tensor tensor = Tensor::Allocate(*dtype, shape);
  size_t i = 0;
  for (std::byte& byte : tensor.mutable_bytes()) {
    byte = static_cast<std::byte>(name[i % name.size()] * (i % 7 == 0 ? 37 : 1));
    ++i;
  }
  checkpoint.Add(name, std::move(tensor), blocks ? ggml : nullptr);
}

test::MemoryCheckpoint Parse(std::string_view text) {
  test::MemoryCheckpoint checkpoint;
  while (!text.empty()) {
    std::string_view line = TakeUntil(text, '\n');
    const size_t space = line.find(' ');
    const std::string_view first = line.substr(0, std::min(space, line.size()));
    if (!first.ends_with(".json")) {
      if (checkpoint.Tensors().size() < kMaxTensors) AddTensor(line, checkpoint);
      continue;
    }
    if (space == std::string_view::npos) continue;
    auto config = nlohmann::json::parse(line.substr(space + 1), nullptr, false);
    if (config.is_object()) checkpoint.AddConfig(std::string(first), std::move(config));
  }
  return checkpoint;
}

/// Faults of the input are errors of kind input; an internal one is a finding.
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

void Use(const FoundWeight& weight) {
  if (weight.format == nullptr || weight.rows < 0 || weight.cols < 0) __builtin_trap();
  for (int64_t index = 0; index < std::min<int64_t>(weight.stack, 2); ++index) {
    EncodedMatrix encoded;
    if (!Accepts([&] { encoded = weight.load(index); })) continue;
    if (!Accepts([&] { encoded.format->Validate(encoded, weight.name); })) continue;
    const int64_t rows = std::min<int64_t>(encoded.rows, 2);
    constexpr int64_t kMaxCols = 1 << 20;
    if (encoded.cols > kMaxCols) continue;
    std::vector<float> out(static_cast<size_t>(rows * encoded.cols));
    Accepts([&] { encoded.format->DecodeRows(encoded, 0, rows, out); });
    Accepts([&] { encoded.format->DecodeRows(encoded, encoded.rows - rows, rows, out); });
  }
}

}  // namespace
}  // namespace assay

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t num_bytes) {
  using namespace assay;
  const test::MemoryCheckpoint checkpoint = Parse({reinterpret_cast<const char*>(data), num_bytes});
  Recognition found;
  Accepts([&] { found = RecogniseAll(checkpoint); });
  std::set<std::string> claimed;
  for (const FoundWeight& weight : found.weights) {
    for (const std::string& name : weight.tensor_names) {
      if (checkpoint.Find(name) == nullptr) __builtin_trap();
      if (!claimed.insert(name).second) __builtin_trap();
    }
    Use(weight);
  }
  return 0;
}
