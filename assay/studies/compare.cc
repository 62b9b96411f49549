#include "assay/studies/compare.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/measure/timing.h"

namespace assay {
namespace {

int64_t NumWildcards(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return c == '*' || c == '?'; });
}

/// A name of one side: what it looks like, and how to get at its elements.
struct Operand {
  DType dtype = DType::kF32;
  Shape shape;
  std::string stored_as;
  int64_t num_bytes = 0;
  std::function<ElementSource()> open;
};

/// Decodes rows of a weight, matrix after matrix of its stack.
ElementSource DecodedSource(const Weight& weight) {
  struct Planes {
    std::mutex mutex;
    std::map<int64_t, EncodedMatrix> matrices;
  };
  ElementSource source;
  source.dtype = weight.dtype();
  source.shape = weight.PlainShape();
  source.read = [weight, planes = std::make_shared<Planes>()](
                    int64_t first, int64_t count,
                    std::vector<std::byte>& scratch) -> std::span<const std::byte> {
    const size_t row_bytes =
        static_cast<size_t>(weight.cols()) * static_cast<size_t>(BitsOf(weight.dtype())) / 8;
    scratch.resize(static_cast<size_t>(count) * row_bytes);
    for (int64_t done = 0; done < count;) {
      const int64_t index = (first + done) / weight.rows();
      const int64_t row = (first + done) % weight.rows();
      const int64_t rows = std::min(count - done, weight.rows() - row);
      const EncodedMatrix* matrix = nullptr;
      {
        const std::lock_guard lock(planes->mutex);
        auto found = planes->matrices.find(index);
        if (found == planes->matrices.end()) {
          found = planes->matrices.emplace(index, weight.Encoded(index)).first;
        }
        matrix = &found->second;  // map entries stay where they are
      }
      matrix->format->DecodeRowsTo(
          *matrix, row, rows, weight.dtype(),
          std::span(scratch).subspan(static_cast<size_t>(done) * row_bytes,
                                     static_cast<size_t>(rows) * row_bytes));
      done += rows;
    }
    return scratch;
  };
  return source;
}

std::map<std::string, Operand> OperandsOf(const Model& model, bool stored) {
  std::map<std::string, Operand> operands;
  std::set<std::string, std::less<>> folded;
  if (!stored) {
    for (const Weight& weight : model.Weights()) {
      if (weight.plain()) continue;
      folded.insert(weight.tensor_names().begin(), weight.tensor_names().end());
      operands[weight.name()] = {weight.dtype(), weight.PlainShape(), weight.format()->Name(),
                                 weight.num_bytes(), [&weight] { return DecodedSource(weight); }};
    }
  }
  for (const StoredTensor& tensor : model.Tensors()) {
    if (folded.contains(tensor.name)) continue;
    operands[tensor.name] = {tensor.dtype, tensor.shape, std::string(NameOf(tensor.dtype)),
                             tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0),
                             [&model, &tensor] { return SourceOf(model.Load(tensor.name)); }};
  }
  return operands;
}

/// Name in A → name in B.
std::map<std::string, std::string> PairNames(const std::map<std::string, Operand>& a,
                                             const CompareOptions& options) {
  std::map<std::string, std::string> pairs;
  std::map<std::string, std::string> taken;
  for (const auto& [name, operand] : a) {
    std::string target = name;
    for (const CompareRename& rename : options.renames) {
      if (const auto renamed = rename.Apply(name)) {
        target = *renamed;
        break;
      }
    }
    if (!options.tensors.empty() && !GlobMatchAny(options.tensors, name) &&
        !GlobMatchAny(options.tensors, target)) {
      continue;
    }
    const auto [other, is_new] = taken.emplace(target, name);
    if (!is_new) {
      ThrowUsage("--rename: {} and {} would both be compared with {}", Quoted(other->second),
                 Quoted(name), Quoted(target));
    }
    pairs.emplace(name, target);
  }
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
  const auto a = OperandsOf(model_a, options.stored);
  const auto b = OperandsOf(model_b, options.stored);
  const auto pairs = PairNames(a, options);

  CompareReport report;
  report.options = options;
  Progress progress;
  progress.num_items = static_cast<int64_t>(pairs.size());
  for (const auto& [name, target] : pairs) progress.num_bytes += a.at(name).num_bytes;
  const auto tell = [&] {
    if (options.progress) options.progress(progress);
  };
  std::set<std::string> used;
  for (const auto& [name, target] : pairs) {
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
