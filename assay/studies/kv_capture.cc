#include "assay/studies/kv_capture.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTokens = "tokens";

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    std::error_code ignored;
    if ((extension == ".safetensors" || extension == ".npy") && !it->is_directory(ignored)) {
      files.push_back(it->path().string());
    }
  }
  if (error) ThrowInput("{}: folder cannot be read: {}", folder, error.message());
  if (files.empty()) ThrowInput("{}: no *.safetensors or *.npy file in this folder", folder);
  std::ranges::sort(files);
  return files;
}

void SplitAxes(KvCapture& capture) {
  std::vector<int64_t> dims(capture.shape.dims().begin(), capture.shape.dims().end());
  while (dims.size() > 3 && dims.front() == 1) dims.erase(dims.begin());
  capture.cols = dims.back();
  dims.pop_back();
  if (!dims.empty()) {
    capture.positions = dims.front();
    for (size_t i = 1; i < dims.size(); ++i) capture.heads *= dims[i];
  }
}

std::optional<std::string> WhyNoCapture(const StoredTensor& tensor) {
  if (!IsWeightFloat(tensor.dtype)) {
    return fmt::format("{}; captures are F32, F16 or BF16", NameOf(tensor.dtype));
  }
  if (tensor.shape.rank() == 0) return "a scalar";
  if (tensor.shape.NumElements() == 0) return "no values";
  return std::nullopt;
}

bool IsTokens(const StoredTensor& tensor) {
  return tensor.name == kTokens && (tensor.dtype == DType::kI64 || tensor.dtype == DType::kI32);
}

template <typename Integer>
std::vector<int64_t> Widened(std::span<const std::byte> bytes) {
  std::vector<int64_t> values(bytes.size() / sizeof(Integer));
  for (size_t i = 0; i < values.size(); ++i) {
    Integer value;
    std::memcpy(&value, bytes.data() + i * sizeof(Integer), sizeof(Integer));
    values[i] = value;
  }
  return values;
}

void AddFile(const std::string& path, KvCaptures& found) {
  ContainerPtr file = OpenContainer(path);
  const std::vector<StoredTensor>& tensors = file->Tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    if (IsTokens(tensor)) {
      const Tensor ids = file->Load(i);
      if (found.tokens.empty()) {
        found.tokens = tensor.dtype == DType::kI64 ? Widened<int64_t>(ids.bytes())
                                                   : Widened<int32_t>(ids.bytes());
      }
      continue;
    }
    if (auto reason = WhyNoCapture(tensor)) {
      found.others.push_back({path, tensor.name, std::move(*reason)});
      continue;
    }
    KvCapture capture;
    capture.path = path;
    capture.name = tensor.name;
    capture.dtype = tensor.dtype;
    capture.shape = tensor.shape;
    capture.file = file;
    capture.index = i;
    SplitAxes(capture);
    found.captures.push_back(std::move(capture));
  }
  found.files.push_back(std::move(file));
}

}  // namespace

int64_t KvCapture::num_bytes() const { return shape.CheckedNumBytes(dtype).value_or(0); }

Tensor KvCapture::Load() const {
  if (file != nullptr) return file->Load(index).As(dtype, Shape{rows(), cols});
  Tensor tensor = Tensor::AllocateUninitialized(DType::kF32, Shape{rows(), cols});
  NormalGenerator(seed).Fill(tensor.mutable_as<float>());
  return tensor;
}

KvCaptures OpenKvCaptures(const std::vector<std::string>& paths) {
  KvCaptures found;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      AddFile(path, found);
      continue;
    }
    for (const std::string& file : FilesIn(path)) AddFile(file, found);
  }
  return found;
}

std::vector<KvCapture> SyntheticKvCaptures(int64_t tokens, uint64_t seed) {
  constexpr std::array<std::pair<const char*, int64_t>, 3> kWidths = {
      {{"window", 512}, {"main", 512}, {"index", 128}}};
  std::vector<KvCapture> captures;
  for (const auto& [name, cols] : kWidths) {
    KvCapture capture;
    capture.path = "synthetic";
    capture.name = name;
    capture.shape = Shape{tokens, cols};
    capture.seed = seed++;
    SplitAxes(capture);
    captures.push_back(std::move(capture));
  }
  return captures;
}

}  // namespace assay
