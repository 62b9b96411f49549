#include "assay/studies/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/ggml_file_type.h"

namespace assay {
namespace {

InspectedTensor OfWeight(const Weight& weight) {
  InspectedTensor tensor;
  tensor.name = weight.name();
  tensor.kind = weight.format()->Name();
  tensor.dtype = Lower(NameOf(weight.dtype()));
  tensor.is_weight = true;
  tensor.is_encoded = !weight.plain();
  tensor.stored = weight.tensor_names();
  tensor.shape = weight.PlainShape();
  tensor.num_values = weight.num_values();
  tensor.num_bytes = weight.num_bytes();
  tensor.notes = weight.notes();
  return tensor;
}

InspectedTensor OfStored(const StoredTensor& stored) {
  InspectedTensor tensor;
  tensor.name = stored.name;
  tensor.kind = tensor.dtype = Lower(NameOf(stored.dtype));
  tensor.stored = {stored.name};
  tensor.shape = stored.shape;
  tensor.num_values = stored.shape.CheckedNumElements().value_or(0);
  tensor.num_bytes = stored.shape.CheckedNumBytes(stored.dtype).value_or(0);
  return tensor;
}

constexpr std::array<std::string_view, 5> kHeadlineKeys = {"general.architecture", "general.name",
                                                           "general.size_label", kGgufFileTypeKey,
                                                           "general.quantization_version"};

// Only the first part of a split model has it.
std::vector<std::pair<std::string, std::string>> HeadlineOf(const Container& file) {
  std::vector<std::pair<std::string, std::string>> headline;
  const auto* gguf = dynamic_cast<const GgufFile*>(&file);
  if (gguf == nullptr) return headline;
  const GgufHeader& header = gguf->header();
  headline.emplace_back("version", fmt::format("{}", header.version));
  for (const std::string_view key : kHeadlineKeys) {
    const GgufValue* value = header.metadata.Find(key);
    if (value == nullptr) continue;
    std::string text = value->ToText();
    if (const auto number = value->AsInteger(); number && key == kGgufFileTypeKey) {
      const GgmlFileType* file_type = FindGgmlFileType(*number);
      text += fmt::format(" ({})", file_type != nullptr ? file_type->name : "unknown");
    }
    headline.emplace_back(key, std::move(text));
  }
  return headline;
}

}  // namespace

double InspectedKind::BitsPerWeight() const {
  return num_values == 0 ? 0
                         : 8.0 * static_cast<double>(num_bytes) / static_cast<double>(num_values);
}

InspectReport InspectModel(const std::string& path) {
  const Model model = Model::Open(path);
  InspectReport report;
  report.path = path;
  if (!model.Files().empty()) {
    report.container = model.Files().front()->kind();
    report.headline = HeadlineOf(*model.Files().front());
  }
  for (const ContainerPtr& file : model.Files()) {
    ++report.num_files;
    report.num_file_bytes += file->num_file_bytes();
  }
  report.num_stored_tensors = static_cast<int64_t>(model.Tensors().size());
  std::set<std::string_view> used;
  for (const Weight& weight : model.Weights()) {
    used.insert(weight.tensor_names().begin(), weight.tensor_names().end());
    report.tensors.push_back(OfWeight(weight));
  }
  for (const StoredTensor& stored : model.Tensors()) {
    if (!used.contains(stored.name)) report.tensors.push_back(OfStored(stored));
  }
  std::sort(report.tensors.begin(), report.tensors.end(),
            [](const InspectedTensor& a, const InspectedTensor& b) { return a.name < b.name; });

  // Encoded kinds first: they are what one looks for.
  std::map<std::pair<bool, std::string>, InspectedKind> kinds;
  report.total.kind = "total";
  for (const InspectedTensor& tensor : report.tensors) {
    InspectedKind& kind = kinds[{!tensor.is_encoded, tensor.kind}];
    kind.kind = tensor.kind;
    for (InspectedKind* sum : {&kind, &report.total}) {
      ++sum->num_tensors;
      sum->num_values += tensor.num_values;
      sum->num_bytes += tensor.num_bytes;
    }
  }
  std::vector<std::pair<bool, InspectedKind>> ordered;
  for (const auto& [key, kind] : kinds) ordered.emplace_back(key.first, kind);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    if (a.first != b.first) return !a.first;
    return a.second.num_bytes > b.second.num_bytes;
  });
  for (auto& [is_plain, kind] : ordered) report.kinds.push_back(std::move(kind));

  report.notes = model.Notes();
  const std::vector<std::string>& notes = model.WeightNotes();
  report.notes.insert(report.notes.end(), notes.begin(), notes.end());
  return report;
}

}  // namespace assay
