#include "assay/report/border_report.h"

#include <fmt/format.h>

#include "assay/report/number.h"
#include "assay/report/table.h"

namespace assay {
namespace {

std::string_view TextOf(BorderConversion conversion) {
  switch (conversion) {
    case BorderConversion::kPermutedHeads:
      return "query and key rows permuted back";
    case BorderConversion::kNormPlusOne:
      return "1 added to norms";
    case BorderConversion::kStackedExperts:
      return "experts stacked";
    case BorderConversion::kJoinedRows:
      return "rows joined";
    case BorderConversion::kTiedEmbedding:
      return "output head tied";
  }
  return {};
}

}  // namespace

Json ToJson(const BorderSummary& border) {
  Json json;
  json["architecture"] = border.architecture.empty() ? Json(nullptr) : Json(border.architecture);
  json["pairs"] = border.num_pairs;
  json["conversions"] = Json::object();
  for (const auto& [conversion, count] : border.conversions) {
    json["conversions"][std::string(NameOf(conversion))] = count;
  }
  return json;
}

std::string ToText(const BorderSummary& border) {
  std::string text =
      fmt::format("names mapped to GGUF's ({}): {}",
                  border.architecture.empty() ? "no architecture" : Printable(border.architecture),
                  WithThousands(border.num_pairs));
  for (const auto& [conversion, count] : border.conversions) {
    text += fmt::format(" · {}: {}", TextOf(conversion), WithThousands(count));
  }
  return text + "\n";
}

}  // namespace assay
