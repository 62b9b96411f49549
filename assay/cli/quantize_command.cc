#include <algorithm>
#include <memory>

#include "assay/cli/commands.h"
#include "assay/cli/interrupt.h"
#include "assay/cli/progress_line.h"
#include "assay/report/convert_report.h"
#include "assay/studies/convert.h"

namespace assay::cli {
namespace {

constexpr size_t kShownNotes = 10;

struct QuantizeFlags {
  QuantizeOptions study;
  std::vector<std::string> formats;
  uint64_t shard_bytes = 0;
};

struct DequantizeFlags {
  DequantizeOptions study;
  std::string dtype;
  uint64_t shard_bytes = 0;
};

std::optional<int64_t> ShardBytes(uint64_t num_bytes) {
  if (num_bytes == 0) return std::nullopt;
  return static_cast<int64_t>(std::min<uint64_t>(num_bytes, INT64_MAX));
}

int Finish(const ConvertReport& report, std::string schema, const CommonOptions& common) {
  for (size_t i = 0; i < std::min(report.notes.size(), kShownNotes); ++i) {
    Note(common, report.notes[i]);
  }
  if (report.notes.size() > kShownNotes) {
    Note(common,
         fmt::format("… and {} more notes; all: --json", report.notes.size() - kShownNotes));
  }
  ReportHead head;
  head.schema = std::move(schema);
  head.command = common.command_line;
  head.machine = DescribeMachine();
  head.scope = {"Bytes are those of the tensors, without headers and other files."};
  Emit(common, ToJson(report, std::move(head)), ToText(report, StdoutStyle()));
  return kExitDone;
}

int RunQuantize(QuantizeFlags& flags, const CommonOptions& common) {
  for (const std::string& format : flags.formats) {
    flags.study.formats.push_back(FormatChoice::Parse(format));
  }
  flags.study.shard_bytes = ShardBytes(flags.shard_bytes);
  ConvertReport report;
  {
    ProgressLine line("quantize", common);
    const InterruptGuard interrupts;
    flags.study.progress = InterruptGuard::Watch(line.Sink());
    report = Quantize(flags.study);
  }
  return Finish(report, "assay.quantize/1", common);
}

int RunDequantize(DequantizeFlags& flags, const CommonOptions& common) {
  if (flags.dtype == "bf16") flags.study.dtype = DType::kBF16;
  if (flags.dtype == "f16") flags.study.dtype = DType::kF16;
  if (flags.dtype == "f32") flags.study.dtype = DType::kF32;
  flags.study.shard_bytes = ShardBytes(flags.shard_bytes);
  ConvertReport report;
  {
    ProgressLine line("dequantize", common);
    const InterruptGuard interrupts;
    flags.study.progress = InterruptGuard::Watch(line.Sink());
    report = Dequantize(flags.study);
  }
  return Finish(report, "assay.dequantize/1", common);
}

void AddPaths(CLI::App& app, std::string& input, std::string& output, uint64_t& shard_bytes) {
  app.add_option("PATH", input, "A tensor file, or a model folder")->required();
  app.add_option(
         "-o,--output", output,
         "What to write: a file (GGUF when its name ends in .gguf), or a folder; must not exist")
      ->required()
      ->type_name("OUT");
  app.add_option("--shard-size", shard_bytes,
                 "Largest safetensors file of a folder, 500MB, 5GiB (default 5GB)")
      ->transform(CLI::AsSizeValue(true).description(""))
      ->type_name("SIZE");
}

std::function<int()> SetUpQuantize(CLI::App& app, const CommonOptions& common) {
  auto flags = std::make_shared<QuantizeFlags>();
  AddPaths(app, flags->study.input, flags->study.output, flags->shard_bytes);
  app.add_option("--format", flags->formats,
                 "The format; further ones for the weights that fit a glob, "
                 "'*.down_proj.weight=affine6g64'")
      ->required()
      ->type_name("[GLOB=]FORMAT");
  app.add_option("--tensor", flags->study.tensors,
                 "Weights to encode (glob; repeatable); default: those the format's loaders look "
                 "for, mostly *.weight")
      ->type_name("GLOB");
  app.add_option("--signs-from", flags->study.signs_from,
                 "Take the signs of TurboQuant weights from this model instead of drawing them")
      ->type_name("DIR");
  return [flags, &common] { return RunQuantize(*flags, common); };
}

std::function<int()> SetUpDequantize(CLI::App& app, const CommonOptions& common) {
  auto flags = std::make_shared<DequantizeFlags>();
  AddPaths(app, flags->study.input, flags->study.output, flags->shard_bytes);
  app.add_option("--dtype", flags->dtype,
                 "Type of the decoded weights: bf16, f16 or f32; default: what each decodes to")
      ->check(OneOf({"bf16", "f16", "f32"}))
      ->type_name("TYPE");
  return [flags, &common] { return RunDequantize(*flags, common); };
}

}  // namespace

const Command kQuantizeCommand = {"quantize", "Write a model or a file in a quantised format",
                                  "assay quantize model/ --format affine4g64 -o model-4bit/",
                                  Results::kText, SetUpQuantize};

const Command kDequantizeCommand = {
    "dequantize", "Write the plain tensors of a quantised model or file",
    "assay dequantize model-4bit/ --dtype bf16 -o model-bf16/", Results::kText, SetUpDequantize};

}  // namespace assay::cli
