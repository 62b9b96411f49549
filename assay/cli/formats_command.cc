#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "assay/cli/commands.h"
#include "assay/formats/catalogue.h"
#include "assay/report/number.h"

namespace assay::cli {
namespace {

struct FormatsFlags {
  std::string name;
  bool names_only = false;
};

// Bits per weight of a matrix that every format can hold.
constexpr int64_t kExampleRows = 4096;
constexpr int64_t kExampleCols = 4096;

std::string BitsOf(const Format& format) {
  if (format.WhyNot(kExampleRows, kExampleCols, DType::kBF16)) return "–";
  return Fixed(format.BitsPerWeight(kExampleRows, kExampleCols), 2);
}

std::string UsesOf(const Format& format) {
  std::string uses = format.CanEncode() ? "enc dec" : "    dec";
  if (format.Form() != nullptr) uses += " files";
  return uses;
}

Json ToJson(const Format& format) {
  Json json;
  json["name"] = format.Name();
  json["summary"] = format.Summary();
  json["lossless"] = format.Lossless();
  json["can_encode"] = format.CanEncode();
  json["has_checkpoint_form"] = format.Form() != nullptr;
  if (!format.WhyNot(kExampleRows, kExampleCols, DType::kBF16)) {
    json["bits_per_weight"] = format.BitsPerWeight(kExampleRows, kExampleCols);
  }
  return json;
}

Json ToJson(const FormatFamily& family) {
  Json json;
  json["family"] = family.name;
  json["grammar"] = family.grammar;
  json["summary"] = family.summary;
  json["recognised_in_checkpoints"] = family.recognise != nullptr;
  json["formats"] = Json::array();
  for (const std::string& name : family.names()) {
    json["formats"].push_back(ToJson(*Format::Parse(name)));
  }
  return json;
}

void PrintCatalogue(const CommonOptions& common) {
  if (common.json) {
    Json all = Json::array();
    for (const FormatFamily* family : FormatCatalogue()) all.push_back(ToJson(*family));
    Print(Serialise({{"schema", "assay.formats/1"}, {"families", std::move(all)}}));
    return;
  }
  Table table(
      {{"format", Align::kLeft}, {"bits/w"}, {"what it is", Align::kLeft, Shorten::kRight}});
  for (const FormatFamily* family : FormatCatalogue()) {
    table.AddHeading(fmt::format("{}: {}", family->name, family->summary));
    for (const std::string& name : family->names()) {
      const FormatPtr format = Format::Parse(name);
      table.AddRow({"  " + name, BitsOf(*format), format->Summary()});
    }
  }
  Print(table.Render(StdoutStyle()));
  Print(
      "\nbits/w: of a 4096 × 4096 bf16 matrix, scales and all. Explain one: assay formats NAME\n");
}

void PrintFamily(const FormatFamily& family, const CommonOptions& common) {
  if (common.json) {
    Json json = {{"schema", "assay.formats/1"}};
    json.update(ToJson(family));
    json["details"] = family.details;
    Print(Serialise(json));
    return;
  }
  Print(fmt::format("{}: {}\n\n{}\n\n", family.name, family.summary, family.details));
  Table table({{"format", Align::kLeft},
               {"bits/w"},
               {"does", Align::kLeft},
               {"what it is", Align::kLeft, Shorten::kRight}});
  for (const std::string& name : family.names()) {
    const FormatPtr format = Format::Parse(name);
    table.AddRow({name, BitsOf(*format), UsesOf(*format), format->Summary()});
  }
  Print(table.Render(StdoutStyle()));
  Print("\ndoes: enc(ode), dec(ode), files: has a form in checkpoints that quantize can write.\n");
}

const FormatFamily& FindFamily(const std::string& name) {
  for (const FormatFamily* family : FormatCatalogue()) {
    if (family->name == name) return *family;
  }
  return FamilyOf(name);
}

int FormatsCommand(const FormatsFlags& options, const CommonOptions& common) {
  if (options.names_only) {
    for (const FormatFamily* family : FormatCatalogue()) {
      for (const std::string& name : family->names()) Print(name + "\n");
    }
  } else if (options.name.empty()) {
    PrintCatalogue(common);
  } else {
    PrintFamily(FindFamily(options.name), common);
  }
  return kExitDone;
}

std::function<int()> SetUpFormats(CLI::App& app, const CommonOptions& common) {
  auto options = std::make_shared<FormatsFlags>();
  app.add_option("NAME", options->name, "A format or a family to explain");
  app.add_flag("--names", options->names_only, "Print the names only, one a line");
  return [options, &common] { return FormatsCommand(*options, common); };
}

}  // namespace

const Command kFormatsCommand = {"formats", "List the formats, or explain one",
                                 "assay formats affine4g64", Results::kText, SetUpFormats};

}  // namespace assay::cli
