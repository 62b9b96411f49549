#include "assay/studies/convert.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "assay/base/error.h"
#include "assay/base/error_context.h"
#include "assay/base/output_file.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_writer.h"
#include "assay/checkpoint/model.h"
#include "assay/checkpoint/writer.h"
#include "assay/measure/timing.h"
#include "assay/studies/convert_config.h"
#include "assay/studies/convert_gguf.h"
#include "assay/studies/convert_plan.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::string_view kConfigName = "config.json";
constexpr std::string_view kIndexName = "model.safetensors.index.json";

/// A folder becomes a folder, unless the output is the one file that holds everything.
bool WritesFolder(const Model& model, std::string_view output) {
  return !model.Directory().empty() && !IsGgufPath(output);
}

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

/// The side of a conversion that writes: tensors into files, configs, other files.
class Conversion {
 public:
  Conversion(const Model& model, const ConvertPlan& plan, std::string output,
             std::optional<int64_t> shard_bytes, ProgressSink progress)
      : model_(model),
        plan_(plan),
        output_(std::move(output)),
        shard_bytes_(shard_bytes),
        sink_(std::move(progress)) {
    if (plan_.form != nullptr) style_ = plan_.form->Style();
  }

  ConvertReport Run(const Model* signs) {
    signs_ = signs;
    OpenWriter();
    progress_.num_items = static_cast<int64_t>(plan_.steps.size());
    for (const ConvertStep& step : plan_.steps) progress_.num_bytes += step.tensor.bytes_before;
    for (const ConvertStep& step : plan_.steps) {
      WriteStep(step);
      ++progress_.items_done;
    }
    Tell();
    model_.Verify();
    if (signs_ != nullptr) signs_->Verify();
    if (IsFolder()) WriteSideFiles();
    writer_->Commit();
    for (const ConvertStep& step : plan_.steps) report_.tensors.push_back(step.tensor);
    report_.notes.insert(report_.notes.end(), plan_.notes.begin(), plan_.notes.end());
    return std::move(report_);
  }

 private:
  bool IsFolder() const { return WritesFolder(model_, output_); }

  void Tell() const {
    if (sink_) sink_(progress_);
  }

  /// Free text of the source's files, without what told how to decode it.
  std::map<std::string, std::string> SourceMetadata() const {
    std::map<std::string, std::string> metadata;
    for (const ContainerPtr& file : model_.Files()) {
      for (const auto& [key, value] : PortableMetadata(*file)) {
        if (TellsOfQuantisation(key)) continue;
        if (key == kConfigName) continue;
        metadata.emplace(key, value);
      }
    }
    return metadata;
  }

  std::vector<WrittenWeight> WrittenWeights() const {
    std::vector<WrittenWeight> written;
    for (const ConvertStep& step : plan_.steps) {
      const Shape& shape = step.tensor.shape;
      if (shape.rank() < 2 && !step.tensor.encoded) continue;
      const size_t rank = shape.rank();
      WrittenWeight weight{step.tensor.name, step.tensor.encoded ? step.format : nullptr,
                           rank < 2 ? 1 : shape[rank - 2], rank < 1 ? 1 : shape[rank - 1]};
      written.push_back(std::move(weight));
    }
    return written;
  }

  /// The config of the output, given that of the source.
  Json ConfigFrom(Json config) const {
    config = WithoutQuantisation(std::move(config));
    if (plan_.form != nullptr) plan_.form->WriteConfig(config, *plan_.format, WrittenWeights());
    return config;
  }

  std::map<std::string, std::string> SideFiles() const {
    if (plan_.form == nullptr) return {};
    return plan_.form->SideFiles(*plan_.format, WrittenWeights());
  }

  void OpenGgufWriter() {
    const std::vector<TensorSpec> tensors = GgufTensors(model_, plan_);
    const GgufMetadata metadata = GgufMetadataFor(model_, tensors);
    if (metadata.Find("general.architecture") == nullptr) {
      report_.notes.push_back(
          fmt::format("{}: {} names no architecture: programs that run models will not load it",
                      output_, model_.Path()));
    }
    writer_ = std::make_unique<GgufWriter>(output_, tensors, metadata);
    report_.num_files = 1;
  }

  void OpenWriter() {
    if (plan_.gguf) return OpenGgufWriter();
    const SafetensorsStyle style{TensorOrder::kReference, style_.data_alignment};
    if (!IsFolder()) {
      std::vector<TensorSpec> tensors;
      for (const ConvertStep& step : plan_.steps) {
        tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
      }
      std::map<std::string, std::string> metadata = SourceMetadata();
      if (plan_.form != nullptr) {
        for (auto& [key, value] : plan_.form->ShardMetadata()) metadata[key] = value;
      }
      const Json config = ConfigFrom(Json::object());
      for (const auto& [key, value] : config.items()) metadata[key] = value.dump();
      for (auto& [name, content] : SideFiles()) metadata[name] = content;
      writer_ = SafetensorsWriter::ToFile(output_, std::move(tensors), metadata, style);
      report_.num_files = 1;
      return;
    }
    std::vector<ShardPlan> shards = PlanFolder();
    report_.num_files = static_cast<int64_t>(shards.size());
    IndexOptions index;
    index.always = style_.always_index || model_.Config(kIndexName) != nullptr;
    index.indent = style_.json_indent;
    if (style_.counts_parameters) {
      int64_t parameters = 0;
      for (const ConvertStep& step : plan_.steps) parameters += step.tensor.num_values;
      index.total_parameters = parameters;
    }
    if (style_.keeps_index_metadata) {
      if (const Json* source = model_.Config(kIndexName)) {
        if (const auto found = source->find("metadata"); found != source->end()) {
          index.metadata = *found;
        }
      }
    }
    auto folder = SafetensorsWriter::ToFolder(output_, std::move(shards), index, style);
    folder_ = folder.get();
    writer_ = std::move(folder);
  }

  std::vector<ShardPlan> PlanFolder() const {
    std::map<std::string, std::string> metadata;
    if (plan_.form != nullptr) {
      metadata = plan_.form->ShardMetadata();
    } else {
      metadata = {{"format", "pt"}};
    }
    if (style_.keeps_shards && !shard_bytes_) {
      std::vector<ShardPlan> shards(model_.Files().size());
      for (size_t file = 0; file < shards.size(); ++file) {
        shards[file].file_name = fs::path(model_.Files()[file]->path()).filename().string();
        shards[file].metadata = metadata;
      }
      for (const ConvertStep& step : plan_.steps) {
        auto& tensors = shards[step.file].tensors;
        tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
      }
      std::erase_if(shards, [](const ShardPlan& shard) { return shard.tensors.empty(); });
      return shards;
    }
    std::vector<TensorSpec> tensors;
    for (const ConvertStep& step : plan_.steps) {
      tensors.insert(tensors.end(), step.outputs.begin(), step.outputs.end());
    }
    return PlanShards(std::move(tensors), shard_bytes_.value_or(kDefaultShardBytes), metadata);
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
        writer_->Write(output.name, piece, static_cast<int64_t>(first));
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
        writer_->Write(step.tensor.name, plain, offset);
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
        writer_->Write(step.outputs[i].name, plane.tensor.bytes(),
                       index * plane.tensor.num_bytes());
      }
      Advance(step.tensor.bytes_before / stack.stack);
    }
  }

  /// config.json, the family's own files, and everything else of the folder that holds no weights.
  void WriteSideFiles() {
    const Json* source = model_.Config(kConfigName);
    std::map<std::string, std::string> own = SideFiles();
    const Json config = ConfigFrom(source != nullptr ? *source : Json::object());
    // An unchanged config is copied below, byte for byte.
    if (source != nullptr ? config != *source : !config.empty()) {
      own[std::string(kConfigName)] = config.dump(style_.json_indent) + "\n";
    }
    for (const auto& [name, content] : own) folder_->AddFile(name, content);
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(model_.Directory())) {
      paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    for (const fs::path& path : paths) {
      const std::string name = path.filename().string();
      if (own.contains(name) || name.ends_with(".index.json") || name.starts_with(".")) continue;
      if (TellsOfQuantisation(name)) continue;
      std::error_code ignored;
      if (!fs::is_regular_file(path, ignored)) {
        report_.notes.push_back(fmt::format("{}: not a file, not copied", name));
        continue;
      }
      if (HoldsWeights(name)) {
        if (!IsSourceFile(path)) {
          report_.notes.push_back(fmt::format("{}: holds other weights, not copied", name));
        }
        continue;
      }
      folder_->CopyFile(name, path.string());
      report_.copied_files.push_back(name);
    }
  }

  bool IsSourceFile(const fs::path& path) const {
    return std::ranges::any_of(model_.Files(), [&](const ContainerPtr& file) {
      std::error_code ignored;
      return fs::equivalent(file->path(), path, ignored);
    });
  }

  const Model& model_;
  const ConvertPlan& plan_;
  const std::string output_;
  const std::optional<int64_t> shard_bytes_;
  const ProgressSink sink_;
  CheckpointStyle style_;
  const Model* signs_ = nullptr;
  std::unique_ptr<TensorWriter> writer_;
  SafetensorsWriter* folder_ = nullptr;  ///< the writer, when it writes a folder
  Progress progress_;
  ConvertReport report_;
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
