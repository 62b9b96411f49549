#include "assay/studies/compare.h"

#include <algorithm>
#include <map>
#include <set>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/measure/timing.h"
#include "assay/studies/border_operands.h"

namespace assay {
namespace {

int64_t NumWildcards(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return c == '*' || c == '?'; });
}

/// A name in A and one in B.
struct NamePair {
  std::string a;
  std::string b;
  const Crossing* crossing = nullptr;
};

/// The name that the first rename that fits gives.
std::optional<std::string> Renamed(const std::string& name, const CompareOptions& options) {
  for (const CompareRename& rename : options.renames) {
    if (auto renamed = rename.Apply(name)) return renamed;
  }
  return std::nullopt;
}

/// By name in A.
std::vector<NamePair> PairNames(const std::map<std::string, Operand>& a,
                                const std::vector<Crossing>& crossings,
                                const CompareOptions& options) {
  std::vector<NamePair> pairs;
  const auto wanted = [&](const std::string& name, const std::string& target) {
    return options.tensors.empty() || GlobMatchAny(options.tensors, name) ||
           GlobMatchAny(options.tensors, target);
  };
  std::set<std::string> crossing_names;
  for (const Crossing& crossing : crossings) {
    crossing_names.insert(crossing.a);
    if (wanted(crossing.a, crossing.b)) pairs.push_back({crossing.a, crossing.b, &crossing});
  }
  std::map<std::string, std::string> taken;
  for (const auto& [name, operand] : a) {
    if (crossing_names.contains(name)) continue;
    const std::string target = Renamed(name, options).value_or(name);
    if (!wanted(name, target)) continue;
    const auto [other, is_new] = taken.emplace(target, name);
    if (!is_new) {
      ThrowUsage("--rename: {} and {} would both be compared with {}", Quoted(other->second),
                 Quoted(name), Quoted(target));
    }
    pairs.push_back({name, target, nullptr});
  }
  std::ranges::stable_sort(pairs, {}, &NamePair::a);
  return pairs;
}

void ComparePair(const Operand& a, const Operand& b, const CompareOptions& options,
                 ComparedTensor& result) {
  if (a.dtype == DType::kUnknown || b.dtype == DType::kUnknown) {
    result.passed = false;
    result.reasons.emplace_back("stored in an element type that this version does not know");
    return;
  }
  if (a.shape != b.shape) {
    result.passed = options.allow_shape;
    result.reasons.push_back(
        fmt::format("shape {} against {}", a.shape.ToString(), b.shape.ToString()));
    return;
  }
  if (a.dtype != b.dtype && !options.allow_dtype) {
    result.passed = false;
    result.reasons.push_back(fmt::format("{} against {}; --allow-dtype compares by value",
                                         NameOf(a.dtype), NameOf(b.dtype)));
    return;
  }
  const ElementSource source_a = a.open();
  const ElementSource source_b = b.open();
  result.difference = MeasureDifference(source_a, source_b, options.num_worst_rows);
  if (const auto reason = WhyGatesAreVacuous(options.gates, *result.difference)) {
    ThrowUsage("{}: {}", result.name, *reason);
  }
  result.reasons = FailedGates(options.gates, *result.difference);
  result.passed = result.reasons.empty();
}

/// A tensor that differs, in shape or in its values, may be the right one after another
/// transformation: what is meant is known then, and it fails by name.
void Explain(const Border& border, const Crossing& crossing, ComparedTensor& result) {
  const bool same =
      result.difference && result.difference->num_equal_bits == result.difference->num_elements;
  if (same) return;
  result.fits_only = FitsOnly(border, crossing);
  if (result.fits_only.empty()) return;
  result.passed = false;
  result.reasons.push_back(result.fits_only);
}

ComparedTensor OnlyIn(std::string_view side, const std::string& name, bool allowed) {
  ComparedTensor tensor;
  tensor.name = name;
  tensor.passed = allowed;
  tensor.reasons.push_back(fmt::format("only in {}", side));
  return tensor;
}

}  // namespace

CompareRename CompareRename::Parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    ThrowUsage("--rename {}: expected PATTERN=REPLACEMENT", Quoted(text));
  }
  CompareRename rename{text.substr(0, equals), text.substr(equals + 1)};
  if (NumWildcards(rename.replacement) > NumWildcards(rename.pattern)) {
    ThrowUsage("--rename {}: the replacement has more wildcards than the pattern", Quoted(text));
  }
  return rename;
}

std::optional<std::string> CompareRename::Apply(const std::string& name) const {
  const auto captured = GlobCapture(pattern, name);
  if (!captured) return std::nullopt;
  std::string renamed;
  size_t next = 0;
  for (const char c : replacement) {
    if (c == '*' || c == '?') {
      renamed += (*captured)[next++];
    } else {
      renamed += c;
    }
  }
  return renamed;
}

CompareReport RunCompare(const CompareOptions& options) {
  RequireTellingGates(options.gates);
  const Stopwatch watch;
  const Model model_a = Model::Open(options.a);
  const Model model_b = Model::Open(options.b);
  auto a = OperandsOf(model_a, options.stored);
  auto b = OperandsOf(model_b, options.stored);
  CompareReport report;
  report.options = options;
  std::optional<Border> border;
  std::vector<Crossing> crossings;
  if (!options.stored) border = Border::Between(model_a, model_b);
  if (border) {
    report.border.emplace().architecture = border->architecture();
    report.notes = border->notes();
    crossings = CrossBorder(
        *border, a, b, [&](const std::string& name) { return Renamed(name, options).has_value(); },
        report.notes);
  }
  const std::vector<NamePair> pairs = PairNames(a, crossings, options);

  Progress progress;
  progress.num_items = static_cast<int64_t>(pairs.size());
  for (const auto& [name, target, crossing] : pairs) progress.num_bytes += a.at(name).num_bytes;
  const auto tell = [&] {
    if (options.progress) options.progress(progress);
  };
  std::set<std::string> used;
  for (const auto& [name, target, crossing] : pairs) {
    tell();
    const Operand& operand = a.at(name);
    ++progress.items_done;
    progress.bytes_done += operand.num_bytes;
    const auto reference = b.find(target);
    if (reference == b.end()) {
      report.tensors.push_back(OnlyIn("A", name, options.allow_missing));
      report.tensors.back().stored_as_a = operand.stored_as;
      continue;
    }
    used.insert(target);
    ComparedTensor result;
    result.name = name;
    if (target != name) result.reference = target;
    result.stored_as_a = operand.stored_as;
    result.stored_as_b = reference->second.stored_as;
    ComparePair(operand, reference->second, options, result);
    if (crossing != nullptr) {
      report.border->Add(*crossing->pair);
      result.conversions = crossing->pair->Sentences();
      Explain(*border, *crossing, result);
    }
    report.num_compared += result.difference ? 1 : 0;
    report.tensors.push_back(std::move(result));
  }
  for (const auto& [name, operand] : b) {
    if (used.contains(name)) continue;
    if (!options.tensors.empty() && !GlobMatchAny(options.tensors, name)) continue;
    report.tensors.push_back(OnlyIn("B", name, options.allow_missing));
    report.tensors.back().stored_as_b = operand.stored_as;
  }
  if (report.tensors.empty()) {
    ThrowInput("{} and {}: no tensor {}", options.a, options.b,
               options.tensors.empty() ? "to compare" : "fits --tensor");
  }
  if (report.num_compared == 0 && options.allow_missing) {
    ThrowInput("{} and {}: no tensor name in common; see --rename", options.a, options.b);
  }
  model_a.Verify();
  model_b.Verify();
  tell();
  for (const ComparedTensor& tensor : report.tensors) {
    ++(tensor.passed ? report.num_passed : report.num_failed);
  }
  for (const Model* model : {&model_a, &model_b}) {
    report.notes.insert(report.notes.end(), model->Notes().begin(), model->Notes().end());
  }
  report.seconds = watch.Seconds();
  return report;
}

}  // namespace assay
