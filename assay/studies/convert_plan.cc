#include "assay/studies/convert_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "assay/base/error.h"
#include "assay/base/glob.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/formats/catalogue.h"
#include "assay/formats/ggml_type.h"
#include "assay/studies/convert_gguf.h"

namespace assay {
namespace {

/// Decodes `count` matrices from `first` into one tensor of `shape`.
Tensor DecodeWeight(const Weight& weight, int64_t first, int64_t count, DType dtype, Shape shape) {
  Tensor plain = Tensor::Allocate(dtype, std::move(shape));
  const std::span<std::byte> out = plain.mutable_bytes();
  const size_t matrix_bytes = count == 0 ? 0 : out.size() / static_cast<size_t>(count);
  for (int64_t i = 0; i < count; ++i) {
    const EncodedMatrix encoded = weight.Encoded(first + i);
    encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, dtype,
                                 out.subspan(static_cast<size_t>(i) * matrix_bytes, matrix_bytes));
  }
  return plain;
}

/// Steps for everything in the model, each a plain copy or an encoded weight yet without action.
std::vector<ConvertStep> SourceSteps(const Model& model) {
  std::map<const Container*, size_t> file_index;
  for (const ContainerPtr& file : model.Files()) file_index.emplace(file.get(), file_index.size());
  const auto file_of = [&](const std::string& tensor) {
    const auto found = file_index.find(&model.FileOf(tensor));
    return found == file_index.end() ? size_t{0} : found->second;
  };
  std::vector<ConvertStep> steps;
  std::set<std::string, std::less<>> folded;
  for (const Weight& weight : model.Weights()) {
    if (weight.plain()) continue;
    folded.insert(weight.tensor_names().begin(), weight.tensor_names().end());
    ConvertStep step;
    step.weight = &weight;
    step.dtype = weight.dtype();
    step.format = weight.format();
    step.file = file_of(weight.tensor_names().front());
    step.tensor.name = weight.name();
    step.tensor.shape = weight.PlainShape();
    step.tensor.from = weight.format()->Name();
    step.tensor.num_values = weight.num_values();
    step.tensor.bytes_before = weight.num_bytes();
    steps.push_back(std::move(step));
  }
  for (const StoredTensor& tensor : model.Tensors()) {
    if (folded.contains(tensor.name)) continue;
    ConvertStep step;
    step.dtype = tensor.dtype;
    step.file = file_of(tensor.name);
    step.tensor.name = tensor.name;
    step.tensor.shape = tensor.shape;
    step.tensor.from = NameOf(tensor.dtype);
    step.tensor.num_values = tensor.shape.CheckedNumElements().value_or(0);
    if (tensor.dtype == DType::kUnknown) {
      ThrowInput("{}: tensor {}: an element type that this version does not know cannot be copied",
                 model.FileOf(tensor.name).path(), Quoted(tensor.name));
    }
    step.tensor.bytes_before = tensor.shape.CheckedNumBytes(tensor.dtype).value_or(0);
    steps.push_back(std::move(step));
  }
  std::ranges::stable_sort(steps, [](const ConvertStep& a, const ConvertStep& b) {
    return a.file != b.file ? a.file < b.file : a.tensor.name < b.tensor.name;
  });
  return steps;
}

void SetOutputs(ConvertStep& step, std::vector<TensorSpec> outputs) {
  step.outputs = std::move(outputs);
  step.tensor.bytes_after = 0;
  for (const TensorSpec& output : step.outputs) {
    step.tensor.bytes_after += output.shape.CheckedNumBytes(output.dtype).value_or(0);
  }
}

void PlanCopy(const Model& model, ConvertStep& step) {
  step.action = ConvertStep::Action::kCopy;
  step.tensor.to = step.tensor.from;
  SetOutputs(step, {*model.Find(step.tensor.name)});
}

void PlanDecode(ConvertStep& step, DType dtype) {
  step.action = ConvertStep::Action::kDecode;
  step.dtype = dtype;
  step.tensor.to = NameOf(dtype);
  SetOutputs(step, {{step.tensor.name, dtype, step.tensor.shape}});
}

void PlanPlanes(const Model& model, ConvertStep& step) {
  step.action = ConvertStep::Action::kPlanes;
  step.tensor.to = step.tensor.from;
  step.tensor.encoded = true;
  std::vector<TensorSpec> outputs;
  for (const std::string& name : step.weight->tensor_names()) outputs.push_back(*model.Find(name));
  SetOutputs(step, std::move(outputs));
}

/// True when the new checkpoint's readers know the planes as they are.
bool KeepsPlanes(const ConvertPlan& plan, const Weight& weight) {
  const Format& format = *weight.format();
  if (plan.gguf) return GgmlTypeOfFormat(format) != nullptr;
  return plan.form != nullptr && format.Form() == plan.form &&
         (plan.form->Style().mixes_formats || format.Name() == plan.format->Name());
}

/// What is left as it is: stored tensors, planes that the new checkpoint's upstream reads too, and
/// the decoded values of other planes.
void PlanKept(const Model& model, ConvertStep& step, ConvertPlan& plan) {
  if (step.weight == nullptr) return PlanCopy(model, step);
  if (KeepsPlanes(plan, *step.weight)) return PlanPlanes(model, step);
  plan.notes.push_back(
      fmt::format("{}: {}, decoded to {}", step.tensor.name, step.tensor.from, NameOf(step.dtype)));
  PlanDecode(step, step.dtype);
}

std::optional<std::string> WhyShapeDoesNotFit(const Shape& shape, const Format& format) {
  if (format.HoldsAnyRank() || shape.rank() == 2 || shape.rank() == 3) return std::nullopt;
  return fmt::format("{}-D: {} encodes matrices and stacks of them", shape.rank(), format.Name());
}

/// The whole tensor as one matrix, for what depends on its values.
MatrixView WholeView(const Tensor& tensor, const MatrixStack& stack) {
  return MatrixView(tensor.view(), stack.stack * stack.rows, stack.cols);
}

/// The tensors that hold the planes.
std::vector<TensorSpec> OutputsOf(const ConvertStep& step, const Format& format, bool gguf,
                                  const std::vector<PlaneSpec>& planes) {
  const Shape& shape = step.tensor.shape;
  if (gguf) return {StoredGgmlTensor(step.tensor.name, *GgmlTypeOfFormat(format), shape)};
  std::vector<TensorSpec> outputs;
  for (const PlaneSpec& plane : planes) {
    outputs.push_back({format.Form()->TensorName(step.tensor.name, plane.name), plane.dtype,
                       format.Form()->StoredShape(plane, shape)});
  }
  return outputs;
}

/// Nothing when the step was planned as an encoding; else why not.
std::optional<std::string> TryPlanEncode(const Model& model, ConvertStep& step,
                                         const FormatPtr& format, bool gguf) {
  const Shape& shape = step.tensor.shape;
  if (!IsWeightFloat(step.dtype)) {
    return fmt::format("{}: expected f32, f16 or bf16", NameOf(step.dtype));
  }
  if (auto reason = WhyShapeDoesNotFit(shape, *format)) return reason;
  const MatrixStack stack = StackOf(shape, *format);
  if (auto reason = format->WhyNot(stack.rows, stack.cols, step.dtype)) return reason;
  std::vector<PlaneSpec> planes;
  if (format->HoldsAnyRank()) {
    const Tensor plain = LoadPlain(model, step);
    const MatrixView view = WholeView(plain, stack);
    if (auto reason = format->WhyKeepPlain(view)) return reason;
    planes = format->LayoutFor(view);
  } else {
    planes = format->Layout(stack.rows, stack.cols, step.dtype);
  }
  SetOutputs(step, OutputsOf(step, *format, gguf, planes));
  step.action = ConvertStep::Action::kEncode;
  step.format = format;
  step.planes = std::move(planes);
  const bool plain = gguf && step.outputs.front().block_type == nullptr;
  step.tensor.to = plain ? std::string(NameOf(step.outputs.front().dtype)) : format->Name();
  step.tensor.encoded = !plain;
  return std::nullopt;
}

std::string FormatsWithFiles() {
  std::vector<std::string> names;
  for (const FormatFamily* family : FormatCatalogue()) {
    std::vector<std::string> written;
    const std::vector<std::string> all = family->names();
    for (const std::string& name : all) {
      const FormatPtr format = Format::Parse(name);
      if (format->Form() != nullptr && format->CanEncode()) written.push_back(name);
    }
    if (written.size() == all.size()) written = {std::string(family->grammar)};
    names.insert(names.end(), written.begin(), written.end());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const FormatPtr& ModelFormat(const std::vector<FormatChoice>& choices) {
  const FormatPtr* found = nullptr;
  for (const FormatChoice& choice : choices) {
    if (!choice.pattern.empty()) continue;
    if (found != nullptr) {
      ThrowUsage(
          "--format: both {} and {} for the whole model; give one of them a pattern, "
          "--format 'GLOB={}'",
          (*found)->Name(), choice.format->Name(), choice.format->Name());
    }
    found = &choice.format;
  }
  if (found == nullptr) ThrowUsage("--format: expected one format for the whole model");
  return *found;
}

void RequireEncoders(const std::vector<FormatChoice>& choices) {
  for (const FormatChoice& choice : choices) {
    if (!choice.format->CanEncode()) {
      ThrowUsage("{}: this format is only decoded", choice.format->Name());
    }
  }
}

void RequireOneCheckpoint(const std::vector<FormatChoice>& choices, const Format& model_format) {
  for (const FormatChoice& choice : choices) {
    const Format& format = *choice.format;
    if (format.Form() == nullptr) {
      ThrowUsage("{}: no checkpoint holds this format; those that can be written: {}",
                 format.Name(), FormatsWithFiles());
    }
    const bool same = format.Name() == model_format.Name();
    if (format.Form() != model_format.Form() || (!same && !format.Form()->Style().mixes_formats)) {
      ThrowUsage("{} and {} do not stand in one checkpoint", model_format.Name(), format.Name());
    }
  }
}

const FormatPtr& FormatFor(const std::vector<FormatChoice>& choices, std::string_view name,
                           const FormatPtr& model_format) {
  for (const FormatChoice& choice : choices) {
    if (!choice.pattern.empty() && GlobMatch(choice.pattern, name)) return choice.format;
  }
  return model_format;
}

}  // namespace

MatrixStack StackOf(const Shape& shape, const Format& format) {
  MatrixStack stack;
  const size_t rank = shape.rank();
  if (rank > 0) stack.cols = shape[rank - 1];
  if (rank > 1) stack.rows = shape[rank - 2];
  for (size_t axis = 0; axis + 2 < rank; ++axis) {
    (format.HoldsAnyRank() ? stack.rows : stack.stack) *= shape[axis];
  }
  return stack;
}

Tensor LoadPlain(const Model& model, const ConvertStep& step) {
  if (step.weight == nullptr) return model.Load(step.tensor.name);
  return DecodeWeight(*step.weight, 0, step.weight->stack(), step.dtype, step.tensor.shape);
}

Tensor LoadPlainMatrix(const Model& model, const ConvertStep& step, int64_t index) {
  if (step.weight != nullptr) {
    return DecodeWeight(*step.weight, index, 1, step.dtype,
                        Shape{step.weight->rows(), step.weight->cols()});
  }
  Tensor tensor = model.Load(step.tensor.name);
  return step.tensor.shape.rank() == 3 ? tensor.Slice(index) : tensor;
}

ConvertPlan PlanQuantize(const Model& model, const QuantizeOptions& options) {
  ConvertPlan plan;
  plan.gguf = IsGgufPath(options.output);
  plan.format = ModelFormat(options.formats);
  RequireEncoders(options.formats);
  RequireContainer(options.formats, plan.gguf);
  if (!plan.gguf) RequireOneCheckpoint(options.formats, *plan.format);
  std::vector<std::string> patterns = options.tensors;
  if (!plan.gguf) plan.form = plan.format->Form();
  if (patterns.empty()) {
    patterns = plan.gguf ? std::vector<std::string>{"*.weight"} : plan.form->DefaultPatterns();
  }
  plan.steps = SourceSteps(model);
  Progress progress{.num_items = static_cast<int64_t>(plan.steps.size())};
  bool any = false;
  for (ConvertStep& step : plan.steps) {
    if (options.progress) options.progress(progress);
    step.tensor.selected = GlobMatchAny(patterns, step.tensor.name);
    if (!step.tensor.selected) {
      PlanKept(model, step, plan);
      continue;
    }
    const FormatPtr& format = FormatFor(options.formats, step.tensor.name, plan.format);
    std::optional<std::string> reason;
    if (plan.gguf && options.tensors.empty() && step.tensor.shape.rank() > 1) {
      reason = WhyKeptInGguf(step.tensor.name);
    }
    if (!reason) reason = TryPlanEncode(model, step, format, plan.gguf);
    if (reason) {
      step.tensor.kept_because = std::move(*reason);
      PlanKept(model, step, plan);
      continue;
    }
    any = true;
    if (step.weight != nullptr) {
      plan.notes.push_back(fmt::format("{}: was {}, decoded before it was encoded again",
                                       step.tensor.name, step.tensor.from));
    }
  }
  if (!any) {
    for (const ConvertStep& step : plan.steps) {
      if (step.tensor.kept_because.empty()) continue;
      ThrowInput("{}: nothing that {} could hold; {}: {}", model.Path(), plan.format->Name(),
                 Quoted(step.tensor.name), step.tensor.kept_because);
    }
    ThrowInput(
        "{}: no tensor fits {}{}", model.Path(), Quoted(patterns.front()),
        options.tensors.empty()
            ? fmt::format(" or the like, which is what readers of {} look for; choose others "
                          "with --tensor",
                          plan.format->Name())
            : "");
  }
  return plan;
}

ConvertPlan PlanDequantize(const Model& model, const DequantizeOptions& options) {
  ConvertPlan plan;
  plan.gguf = IsGgufPath(options.output);
  plan.steps = SourceSteps(model);
  bool any = false;
  for (ConvertStep& step : plan.steps) {
    if (step.weight == nullptr) {
      PlanCopy(model, step);
      continue;
    }
    any = true;
    step.tensor.selected = true;
    PlanDecode(step, options.dtype.value_or(step.dtype));
  }
  if (!any) ThrowInput("{}: no encoded weight to decode", model.Path());
  return plan;
}

}  // namespace assay
