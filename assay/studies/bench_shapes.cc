#include "assay/studies/bench_shapes.h"

#include <array>
#include <charconv>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/mapped_file.h"

namespace assay {
namespace {

// So that three of them multiply within an int64_t after a check of two.
constexpr int64_t kMaxDimension = int64_t{1} << 30;
constexpr std::string_view kBlanks = " \t\r";

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

}  // namespace

BenchShape ParseBenchShape(std::string_view text, int64_t tokens) {
  const auto fail = [&]() {
    ThrowUsage("shape {}: expected M,K,N, each from 1 to {}", Quoted(text), kMaxDimension);
  };
  std::array<int64_t, 3> sizes{};
  std::string_view rest = text;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t comma = i + 1 < sizes.size() ? rest.find(',') : rest.size();
    if (comma == std::string_view::npos) fail();
    const std::string_view word = Trim(rest.substr(0, comma));
    if (i == 0 && word == "*") {
      sizes[i] = tokens;
    } else {
      const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), sizes[i]);
      if (error != std::errc() || end != word.data() + word.size()) fail();
    }
    if (sizes[i] < 1 || sizes[i] > kMaxDimension) fail();
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return {"", sizes[0], sizes[1], sizes[2]};
}

std::vector<BenchShape> ReadBenchShapes(const std::string& path, int64_t tokens) {
  const auto file = MappedFile::Open(path);
  std::string_view text = AsText(file->bytes());
  std::vector<BenchShape> shapes;
  for (int64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const size_t blank = line.find_first_of(kBlanks);
    if (blank == std::string_view::npos) {
      ThrowInput("{}: line {}: expected a name and M,K,N, found {}", path, number, Quoted(line));
    }
    try {
      shapes.push_back(ParseBenchShape(Trim(line.substr(blank)), tokens));
    } catch (const Error& error) {
      ThrowInput("{}: line {}: {}", path, number, error.what());
    }
    shapes.back().name = line.substr(0, blank);
  }
  file->Verify();
  if (shapes.empty()) ThrowInput("{}: no shape in it", path);
  return shapes;
}

BenchVariant ParseBenchVariant(std::string_view spec) {
  BenchVariant variant;
  std::string_view format = spec;
  std::string strategy;
  const size_t colon = spec.rfind(':');
  for (const Strategy known :
       {Strategy::kReference, Strategy::kDequantGemm, Strategy::kFused, Strategy::kFusedA8}) {
    if (colon == std::string_view::npos || NameOf(known) != spec.substr(colon + 1)) continue;
    variant.strategy = known;
    format = spec.substr(0, colon);
    strategy = spec.substr(colon);
  }
  if (format == "stored") {
    variant.spec = spec;
    return variant;
  }
  variant.format = Format::Parse(format);
  if (!variant.format->CanEncode()) {
    ThrowUsage("{}: it has no encoder; only a model that holds it can be timed, as \"stored\"",
               variant.format->Name());
  }
  variant.spec = variant.format->Name() + strategy;
  return variant;
}

}  // namespace assay
