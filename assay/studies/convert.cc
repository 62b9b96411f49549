#include "assay/studies/convert.h"

#include <algorithm>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/error_context.h"
#include "assay/base/output_file.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/measure/timing.h"
#include "assay/studies/convert_output.h"
#include "assay/studies/convert_plan.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

/// Refuses what must not be overwritten, before any work.
void RequireFreeOutput(const Model& model, const std::string& output) {
  if (output.empty()) ThrowUsage("output: expected a path");
  std::vector<std::string> inputs{model.Path()};
  if (!model.Directory().empty()) inputs.push_back(model.Directory());
  for (const ContainerPtr& file : model.Files()) inputs.push_back(file->path());
  RequireDistinct(output, inputs);
  RequireWritableParent(output);
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(output, ignored);
  if (status.type() == fs::file_type::not_found) return;
  const bool folder = WritesFolder(model, output);
  if (folder && fs::is_directory(output, ignored) && fs::is_empty(output, ignored)) return;
  ThrowUsage("{}: exists already; expected a new {}", output, folder ? "folder" : "file");
}

/// Turns the steps of a plan into bytes of the output.
class Conversion {
 public:
  Conversion(const Model& model, const ConvertPlan& plan, const std::string& output,
             std::optional<int64_t> shard_bytes, ProgressSink progress)
      : model_(model),
        plan_(plan),
        sink_(std::move(progress)),
        output_(model, plan, output, shard_bytes, report_) {}

  ConvertReport Run(const Model* signs) {
    signs_ = signs;
    progress_.num_items = static_cast<int64_t>(plan_.steps.size());
    for (const ConvertStep& step : plan_.steps) progress_.num_bytes += step.tensor.bytes_before;
    for (const ConvertStep& step : plan_.steps) {
      WriteStep(step);
      ++progress_.items_done;
    }
    Tell();
    model_.Verify();
    if (signs_ != nullptr) signs_->Verify();
    output_.Commit();
    for (const ConvertStep& step : plan_.steps) report_.tensors.push_back(step.tensor);
    report_.notes.insert(report_.notes.end(), plan_.notes.begin(), plan_.notes.end());
    return std::move(report_);
  }

 private:
  void Tell() const {
    if (sink_) sink_(progress_);
  }

  void WriteStep(const ConvertStep& step) {
    NamingFile(model_.Path(), [&] {
      switch (step.action) {
        case ConvertStep::Action::kCopy:
        case ConvertStep::Action::kPlanes:
          return CopyTensors(step);
        case ConvertStep::Action::kDecode:
          return Decode(step);
        case ConvertStep::Action::kEncode:
          return Encode(step);
      }
    });
  }

  void Advance(int64_t num_bytes) {
    progress_.bytes_done += num_bytes;
    Tell();
  }

  void CopyTensors(const ConvertStep& step) {
    constexpr size_t kPiece = size_t{64} << 20;
    for (const TensorSpec& output : step.outputs) {
      const Tensor tensor = model_.Load(output.name);
      const std::span<const std::byte> bytes = tensor.bytes();
      for (size_t first = 0; first < bytes.size(); first += kPiece) {
        const auto piece = bytes.subspan(first, std::min(kPiece, bytes.size() - first));
        output_.writer().Write(output.name, piece, static_cast<int64_t>(first));
        Advance(static_cast<int64_t>(piece.size()));
      }
    }
  }

  void Decode(const ConvertStep& step) {
    const Weight& weight = *step.weight;
    const int64_t row_bytes = weight.cols() * BitsOf(step.dtype) / 8;
    const int64_t rows_per_piece =
        std::max<int64_t>(1, (int64_t{256} << 20) / std::max<int64_t>(1, row_bytes));
    int64_t num_overflows = 0;
    int64_t offset = 0;
    std::vector<std::byte> plain;
    for (int64_t index = 0; index < weight.stack(); ++index) {
      const EncodedMatrix encoded = weight.Encoded(index);
      for (int64_t row = 0; row < encoded.rows; row += rows_per_piece) {
        const int64_t count = std::min(rows_per_piece, encoded.rows - row);
        plain.resize(static_cast<size_t>(count * row_bytes));
        encoded.format->DecodeRowsTo(encoded, row, count, step.dtype, plain);
        if (step.dtype == DType::kF16) num_overflows += CountInfinities(plain);
        output_.writer().Write(step.tensor.name, plain, offset);
        offset += static_cast<int64_t>(plain.size());
      }
      Advance(step.tensor.bytes_before / weight.stack());
    }
    if (num_overflows > 0) {
      report_.notes.push_back(fmt::format("{}: {} decoded values are infinite in f16",
                                          step.tensor.name, num_overflows));
    }
  }

  static int64_t CountInfinities(std::span<const std::byte> f16) {
    int64_t count = 0;
    for (size_t i = 0; i + 1 < f16.size(); i += 2) {
      const bool infinite =
          f16[i] == std::byte{0} && (f16[i + 1] & std::byte{0x7F}) == std::byte{0x7C};
      count += infinite ? 1 : 0;
    }
    return count;
  }

  /// Planes another model gives: its signs.
  std::vector<Plane> GivenPlanes(const ConvertStep& step) const {
    if (signs_ == nullptr) return {};
    const Weight* weight = signs_->FindWeight(step.tensor.name);
    if (weight == nullptr || weight->plain()) {
      ThrowUsage("--signs-from {}: has no encoded weight {}", signs_->Path(),
                 Quoted(step.tensor.name));
    }
    const EncodedMatrix encoded = weight->Encoded(0);
    const Tensor* signs = encoded.Find("signs");
    if (signs == nullptr) {
      ThrowUsage("--signs-from {}: {} is {}, which has no signs", signs_->Path(),
                 Quoted(step.tensor.name), weight->format()->Name());
    }
    return {{"signs", *signs}};
  }

  void Encode(const ConvertStep& step) {
    const std::vector<Plane> given = GivenPlanes(step);
    const MatrixStack stack = StackOf(step.tensor.shape, *step.format);
    for (int64_t index = 0; index < stack.stack; ++index) {
      const Tensor plain = step.format->HoldsAnyRank() ? LoadPlain(model_, step)
                                                       : LoadPlainMatrix(model_, step, index);
      const EncodeOptions options{step.tensor.name, given};
      const EncodedMatrix encoded =
          step.format->Encode(MatrixView(plain.view(), stack.rows, stack.cols), options);
      for (size_t i = 0; i < encoded.planes.size(); ++i) {
        const Plane& plane = encoded.planes[i];
        output_.writer().Write(step.outputs[i].name, plane.tensor.bytes(),
                               index * plane.tensor.num_bytes());
      }
      Advance(step.tensor.bytes_before / stack.stack);
    }
  }

  const Model& model_;
  const ConvertPlan& plan_;
  const ProgressSink sink_;
  const Model* signs_ = nullptr;
  Progress progress_;
  ConvertReport report_;
  ConvertOutput output_;  ///< reports into report_
};

}  // namespace

FormatChoice FormatChoice::Parse(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos) return {"", Format::Parse(text)};
  if (equals == 0) ThrowUsage("--format {}: expected GLOB=FORMAT", Quoted(text));
  return {text.substr(0, equals), Format::Parse(text.substr(equals + 1))};
}

ConvertReport Quantize(const QuantizeOptions& options) {
  const Stopwatch watch;
  const Model model = Model::Open(options.input);
  RequireFreeOutput(model, options.output);
  std::optional<Model> signs;
  if (!options.signs_from.empty()) signs = Model::Open(options.signs_from);
  const ConvertPlan plan = PlanQuantize(model, options);
  Conversion conversion(model, plan, options.output, options.shard_bytes, options.progress);
  ConvertReport report = conversion.Run(signs ? &*signs : nullptr);
  report.input = options.input;
  report.output = options.output;
  report.format = plan.format->Name();
  report.seconds = watch.Seconds();
  return report;
}

ConvertReport Dequantize(const DequantizeOptions& options) {
  const Stopwatch watch;
  if (options.dtype && !IsWeightFloat(*options.dtype)) {
    ThrowUsage("--dtype {}: expected bf16, f16 or f32", NameOf(*options.dtype));
  }
  const Model model = Model::Open(options.input);
  RequireFreeOutput(model, options.output);
  const ConvertPlan plan = PlanDequantize(model, options);
  Conversion conversion(model, plan, options.output, options.shard_bytes, options.progress);
  ConvertReport report = conversion.Run(nullptr);
  report.input = options.input;
  report.output = options.output;
  if (options.dtype) report.format = NameOf(*options.dtype);
  report.seconds = watch.Seconds();
  return report;
}

}  // namespace assay
