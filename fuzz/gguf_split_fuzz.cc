// The rules that tie the parts of a split GGUF model. Input: the number of parts (1 to 4), their
// sizes as u16, then their bytes. Parts that are accepted must be one model.

#include <cstdint>
#include <cstdlib>
#include <set>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_split.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

std::vector<std::string_view> Cut(std::string_view input) {
  constexpr size_t kMaxParts = 4;
  std::vector<std::string_view> parts;
  if (input.empty()) return parts;
  const size_t count = static_cast<unsigned char>(input[0]) % kMaxParts + 1;
  if (input.size() < 1 + 2 * count) return parts;
  std::string_view rest = input.substr(1 + 2 * count);
  for (size_t i = 0; i < count; ++i) {
    const auto low = static_cast<unsigned char>(input[1 + 2 * i]);
    const auto high = static_cast<unsigned char>(input[2 + 2 * i]);
    parts.push_back(rest.substr(0, size_t{low} | size_t{high} << 8));
    rest.remove_prefix(parts.back().size());
  }
  return parts;
}

void CheckAccepted(const std::vector<assay::GgufHeader>& headers) {
  std::set<std::string_view> names;
  size_t count = 0;
  for (size_t i = 0; i < headers.size(); ++i) {
    Require(headers[i].metadata.Integer("split.no") == static_cast<int64_t>(i));
    Require(headers[i].metadata.Integer("split.count") == static_cast<int64_t>(headers.size()));
    for (const assay::GgufTensorInfo& info : headers[i].tensors) names.insert(info.name);
    count += headers[i].tensors.size();
  }
  Require(names.size() == count);
  Require(headers[0].metadata.Integer("split.tensors.count") == static_cast<int64_t>(count));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  try {
    std::vector<assay::GgufHeader> headers;
    for (const std::string_view part : Cut(input)) {
      headers.push_back(assay::ReadGgufHeader(assay::AsBytes(part), "fuzz.gguf"));
    }
    if (headers.empty()) return 0;
    std::vector<assay::GgufPart> parts;
    for (const assay::GgufHeader& header : headers) parts.push_back({"fuzz.gguf", &header});
    assay::CheckGgufParts(parts);
    CheckAccepted(headers);
  } catch (const assay::Error& error) {
    Require(error.kind() == assay::ErrorKind::kInput);
    Require(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
  return 0;
}
