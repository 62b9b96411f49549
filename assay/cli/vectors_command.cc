#include <memory>

#include "assay/cli/commands.h"
#include "assay/studies/vectors.h"

namespace assay::cli {
namespace {

struct VectorsFlags {
  VectorsOptions study;
  std::string format;
  std::string dtype = "bf16";
  int64_t cols = 0;
};

std::string ToText(const VectorsReport& report) {
  std::string text =
      fmt::format("{} · {} rows of {} columns · {} files\n\n", Printable(report.options.output),
                  report.reasons.size(), report.cols, report.files.size());
  Table table({{"plane", Align::kLeft}, {"dtype", Align::kLeft}, {"shape", Align::kLeft}});
  for (const PlaneSpec& plane : report.planes) {
    table.AddRow({plane.name, std::string(NameOf(plane.dtype)), plane.shape.ToString()});
  }
  text += table.Render(StdoutStyle());
  if (!report.left_out.empty()) {
    text += fmt::format("\n{} rows left out that the format refuses; README.md says which\n",
                        report.left_out.size());
  }
  return text;
}

int VectorsCommand(VectorsFlags& options, const CommonOptions& /*common*/) {
  options.study.format = Format::Parse(options.format);
  if (options.dtype == "f16") options.study.dtype = DType::kF16;
  if (options.dtype == "f32") options.study.dtype = DType::kF32;
  if (options.cols > 0) options.study.cols = options.cols;
  Print(ToText(WriteVectors(options.study)));
  return kExitDone;
}

std::function<int()> SetUpVectors(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<VectorsFlags>();
  app.add_option("--format", options->format, "The format")->required()->type_name("FORMAT");
  app.add_option("-o,--output", options->study.output, "Folder to write; must not exist")
      ->required()
      ->type_name("DIR");
  app.add_option("--dtype", options->dtype, "Type of the input: bf16 (default), f16 or f32")
      ->check(OneOf({"bf16", "f16", "f32"}))
      ->type_name("TYPE");
  app.add_option("--cols", options->cols, "Columns; default: 256, or what the format takes")
      ->check(InRange(1, int64_t{1} << 20))
      ->type_name("K");
  app.add_option("--seed", options->study.seed, "Of the random rows (default 1)")
      ->check(Unsigned64())
      ->type_name("N");
  return [options, &common] { return VectorsCommand(*options, common); };
}

}  // namespace

const Command kVectorsCommand = {"vectors", "Write golden vectors of a format for kernel writers",
                                 "assay vectors --format affine4g64 -o vectors-affine4g64/",
                                 Results::kOther, SetUpVectors};

}  // namespace assay::cli
