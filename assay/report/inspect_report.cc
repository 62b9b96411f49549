#include "assay/report/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/report/number.h"
#include "assay/version.h"

namespace assay {
namespace {

std::string Plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", WithThousands(count), noun, count == 1 ? "" : "s");
}

Json KindJson(const InspectedKind& kind) {
  Json json;
  json["kind"] = kind.kind;
  json["tensors"] = kind.num_tensors;
  json["parameters"] = kind.num_values;
  json["bytes"] = kind.num_bytes;
  json["bits_per_weight"] = kind.BitsPerWeight();
  return json;
}

Json TensorJson(const InspectedTensor& tensor) {
  Json json;
  json["name"] = tensor.name;
  json["kind"] = tensor.kind;
  json["dtype"] = tensor.dtype;
  const std::span<const int64_t> dims = tensor.shape.dims();
  json["shape"] = std::vector<int64_t>(dims.begin(), dims.end());
  json["weight"] = tensor.is_weight;
  json["parameters"] = tensor.num_values;
  json["bytes"] = tensor.num_bytes;
  if (tensor.is_encoded) json["stored_as"] = tensor.stored;
  if (!tensor.notes.empty()) json["notes"] = tensor.notes;
  return json;
}

void AddKind(Table& table, const InspectedKind& kind, Emphasis emphasis) {
  table.AddRow({{kind.kind, emphasis},
                {WithThousands(kind.num_tensors), emphasis},
                {HumanCount(kind.num_values), emphasis},
                {HumanBytes(kind.num_bytes), emphasis},
                {kind.num_values == 0 ? "–" : Fixed(kind.BitsPerWeight(), 2), emphasis}});
}

std::string List(const InspectReport& report, const TableStyle& style) {
  Table table({{"tensor", Align::kLeft, Shorten::kLeft},
               {"kind", Align::kLeft},
               {"shape", Align::kLeft},
               {"stored"}});
  for (const InspectedTensor& tensor : report.tensors) {
    table.AddRow({tensor.name, tensor.kind, tensor.shape.ToString(), HumanBytes(tensor.num_bytes)});
  }
  return table.Render(style);
}

std::string Notes(const InspectReport& report, const TableStyle& style) {
  Table table({{"notes", Align::kLeft, Shorten::kLeft}, {"", Align::kLeft}});
  bool any = false;
  std::string about_files;
  for (const InspectedTensor& tensor : report.tensors) {
    for (const std::string& note : tensor.notes) {
      table.AddRow({fmt::format("  {}", tensor.name), note});
      any = true;
    }
  }
  for (const std::string& note : report.notes)
    about_files += fmt::format("  {}\n", Printable(note));
  if (!any && about_files.empty()) return {};
  return fmt::format("\n{}{}", any ? table.Render(style) : "notes\n", about_files);
}

// "gguf 3 · general.architecture llama · …"
std::string Headline(const InspectReport& report) {
  if (report.headline.empty()) return {};
  std::string text = report.container;
  for (const auto& [key, value] : report.headline) {
    std::string_view name = key;
    constexpr std::string_view kPrefix = "general.";
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    std::string words(name);
    std::ranges::replace(words, '_', ' ');
    text += fmt::format(" · {} {}", words, Printable(value));
  }
  return text + "\n";
}

}  // namespace

Json InspectJson(const InspectReport& report, const std::string& command) {
  Json json;
  json["schema"] = "assay.inspect/1";
  json["assay_version"] = kVersion;
  json["command"] = command;
  json["path"] = report.path;
  json["container"] = report.container;
  for (const auto& [key, text] : report.headline) json["metadata"][key] = text;
  json["files"] = report.num_files;
  json["file_bytes"] = report.num_file_bytes;
  json["stored_tensors"] = report.num_stored_tensors;
  json["kinds"] = Json::array();
  for (const InspectedKind& kind : report.kinds) json["kinds"].push_back(KindJson(kind));
  json["total"] = KindJson(report.total);
  json["tensors"] = Json::array();
  for (const InspectedTensor& tensor : report.tensors)
    json["tensors"].push_back(TensorJson(tensor));
  json["notes"] = report.notes;
  return json;
}

std::string InspectText(const InspectReport& report, bool list, const TableStyle& style) {
  std::string text = fmt::format(
      "{} · {} · {} · {} stored\n\n", Printable(report.path), Plural(report.num_files, "file"),
      HumanBytes(report.num_file_bytes), Plural(report.num_stored_tensors, "tensor"));
  text.insert(text.size() - 1, Headline(report));
  if (list) text += List(report, style) + "\n";
  Table table({{"kind", Align::kLeft}, {"tensors"}, {"parameters"}, {"stored"}, {"bits/w"}});
  for (const InspectedKind& kind : report.kinds) AddKind(table, kind, Emphasis::kNone);
  AddKind(table, report.total, Emphasis::kBold);
  return text + table.Render(style) + Notes(report, style);
}

}  // namespace assay
