#include "assay/studies/vectors.h"

#include <map>
#include <nlohmann/json.hpp>

#include "assay/base/error.h"
#include "assay/base/output_file.h"
#include "assay/base/output_folder.h"
#include "assay/base/text.h"
#include "assay/checkpoint/writer.h"
#include "assay/formats/catalogue.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"
#include "assay/version.h"

namespace assay {
namespace {

struct NamedTensor {
  std::string name;
  Tensor tensor;
  std::string meaning;
};

/// "cols" when it fits, else the fewest from a list of usual widths.
int64_t ChooseCols(const VectorsOptions& options) {
  const Format& format = *options.format;
  if (options.cols) {
    if (*options.cols < 1) ThrowUsage("--cols {}: expected at least 1", *options.cols);
    if (const auto reason = format.WhyNot(1, *options.cols, options.dtype)) {
      ThrowUsage("{}: {}", format.Name(), *reason);
    }
    return *options.cols;
  }
  for (const int64_t cols : {256, 512, 128, 1024, 448, 576, 2048}) {
    if (!format.WhyNot(1, cols, options.dtype)) return cols;
  }
  ThrowUsage("{}: {}", format.Name(), format.WhyNot(1, 256, options.dtype).value_or(""));
}

Tensor InputOf(const std::vector<VectorRow>& rows, DType dtype, int64_t cols) {
  Tensor input = Tensor::Allocate(dtype, Shape{static_cast<int64_t>(rows.size()), cols});
  const size_t row_bytes = rows.empty() ? 0 : input.bytes().size() / rows.size();
  for (size_t row = 0; row < rows.size(); ++row) {
    Round(ElementOf(dtype), rows[row].values,
          input.mutable_bytes().subspan(row * row_bytes, row_bytes));
  }
  return input;
}

/// Leaves out the rows that the format refuses, one by one.
std::vector<VectorRow> Encodable(std::vector<VectorRow> rows, const VectorsOptions& options,
                                 int64_t cols, std::vector<std::string>& left_out) {
  std::vector<VectorRow> kept;
  for (VectorRow& row : rows) {
    const Tensor one = InputOf({row}, options.dtype, cols);
    try {
      options.format->Encode(MatrixView(one.view(), 1, cols), {.tensor_name = "row"});
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kInternal) throw;
      left_out.push_back(fmt::format("{}: {}", row.reason, error.what()));
      continue;
    }
    kept.push_back(std::move(row));
  }
  return kept;
}

std::vector<NamedTensor> TensorsOf(const EncodedMatrix& encoded, const Tensor& input) {
  std::vector<NamedTensor> tensors = {{"input", input, "what was encoded"}};
  for (const Plane& plane : encoded.planes) {
    tensors.push_back({"plane." + plane.name, plane.tensor, "encoded"});
  }
  const Shape shape{encoded.rows, encoded.cols};
  Tensor decoded = Tensor::Allocate(encoded.dtype, shape);
  encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, encoded.dtype, decoded.mutable_bytes());
  tensors.push_back({"decoded", decoded, "as upstream's dequantise rounds it"});
  Tensor exact = Tensor::Allocate(DType::kF32, shape);
  encoded.format->DecodeRows(encoded, 0, encoded.rows, exact.mutable_as<float>(),
                             DecodeRounding::kNone);
  tensors.push_back({"decoded_f32", exact, "the format's equation in f32, not rounded further"});
  return tensors;
}

/// The npy type that holds a dtype's bits: numpy has no bf16, fp8 or smaller.
struct NpyType {
  std::string_view descr;
  int bytes;
};

NpyType NpyTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return {"<f2", 2};
    case DType::kF32:
      return {"<f4", 4};
    case DType::kF64:
      return {"<f8", 8};
    case DType::kI8:
      return {"|i1", 1};
    case DType::kI16:
      return {"<i2", 2};
    case DType::kI32:
      return {"<i4", 4};
    case DType::kI64:
      return {"<i8", 8};
    case DType::kBF16:
    case DType::kU16:
      return {"<u2", 2};
    case DType::kU32:
      return {"<u4", 4};
    case DType::kU64:
      return {"<u8", 8};
    case DType::kC64:
      return {"<f4", 4};
    case DType::kBool:
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kU8:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kUnknown:
      return {"|u1", 1};
  }
  return {"|u1", 1};
}

/// Version 1.0, the data at a multiple of 64. Packed elements become bytes: the last axis then
/// counts those.
std::string NpyFile(const Tensor& tensor) {
  const NpyType type = NpyTypeOf(tensor.dtype());
  std::vector<int64_t> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
  const int64_t stored_bits = BitsOf(tensor.dtype());
  if (stored_bits != 8 * type.bytes && !dims.empty()) {
    dims.back() = dims.back() * stored_bits / (8 * type.bytes);
  }
  std::string shape;
  for (const int64_t dim : dims) shape += fmt::format("{}, ", dim);
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", type.descr, shape);
  constexpr size_t kPrefix = 10;
  header.append(63 - (kPrefix + header.size()) % 64, ' ');
  header += '\n';
  std::string file = "\x93NUMPY";
  file += '\x01';
  file += '\0';
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  file += header;
  file += AsText(tensor.bytes());
  return file;
}

std::string TensorTable(const std::vector<NamedTensor>& tensors) {
  std::string table = "| tensor | dtype | shape | npy | what it is |\n|---|---|---|---|---|\n";
  for (const NamedTensor& named : tensors) {
    table += fmt::format("| `{}` | {} | {} | `{}.npy`, {} | {} |\n", named.name,
                         NameOf(named.tensor.dtype()), named.tensor.shape().ToString(), named.name,
                         NpyTypeOf(named.tensor.dtype()).descr, named.meaning);
  }
  return table;
}

std::string Readme(const VectorsReport& report, const std::vector<NamedTensor>& tensors) {
  const Format& format = *report.options.format;
  const FormatFamily& family = FamilyOf(format.Name());
  std::string text = fmt::format(
      "# Golden vectors: {}\n\n{}.\n\nWritten by assay {}, seed {}: `assay vectors --format "
      "{}`.\n\n",
      format.Name(), format.Summary(), kVersion, report.options.seed, format.Name());
  text += fmt::format("## The format\n\n```\n{}\n```\n\n", family.details);
  if (const auto geometry = format.Geometry()) {
    text += fmt::format(
        "Here: codes of {} bits, groups of {} values along a row, {} columns, {} bits per weight "
        "in "
        "all.\n\n",
        geometry->bits, geometry->group_size, report.cols,
        format.BitsPerWeight(static_cast<int64_t>(report.reasons.size()), report.cols));
  }
  text += "## What is in the files\n\n" + TensorTable(tensors);
  text +=
      "\n`vectors.safetensors` holds all of them. The .npy files hold the same bytes one by one; "
      "types that numpy\nlacks (bf16, fp8, fp4) stand as unsigned integers of their bits.\n\n"
      "A kernel is right when\n\n"
      "- encoding `input` gives every `plane.*` bit for bit,\n"
      "- decoding the planes gives `decoded` bit for bit (`decoded_f32` before the last "
      "rounding).\n";
  text += "\n## Why each row is there\n\n| row | reason |\n|---|---|\n";
  for (size_t row = 0; row < report.reasons.size(); ++row) {
    text += fmt::format("| {} | {} |\n", row, report.reasons[row]);
  }
  if (!report.left_out.empty()) {
    text += "\n## Rows the format refuses\n\n";
    for (const std::string& row : report.left_out) text += fmt::format("- {}\n", row);
  }
  return text;
}

}  // namespace

VectorsReport WriteVectors(const VectorsOptions& options) {
  const Format& format = *options.format;
  if (!format.CanEncode()) ThrowUsage("{}: this format is only decoded", format.Name());
  if (!IsWeightFloat(options.dtype)) {
    ThrowUsage("--dtype {}: expected bf16, f16 or f32", NameOf(options.dtype));
  }
  VectorsReport report;
  report.options = options;
  report.cols = ChooseCols(options);
  OutputFolder folder(options.output);
  const std::vector<VectorRow> rows =
      Encodable(MakeVectorRows(options.dtype, report.cols, options.seed), options, report.cols,
                report.left_out);
  if (rows.empty()) {
    ThrowUsage("{}: refuses every row; the first: {}", format.Name(), report.left_out.front());
  }
  for (const VectorRow& row : rows) report.reasons.push_back(row.reason);
  const Tensor input = InputOf(rows, options.dtype, report.cols);
  const EncodedMatrix encoded =
      format.Encode(MatrixView(input.view(), static_cast<int64_t>(rows.size()), report.cols),
                    {.tensor_name = "input"});
  for (const Plane& plane : encoded.planes) {
    report.planes.push_back({plane.name, plane.tensor.dtype(), plane.tensor.shape()});
  }
  const std::vector<NamedTensor> tensors = TensorsOf(encoded, input);

  std::vector<TensorSpec> specs;
  for (const NamedTensor& named : tensors) {
    specs.push_back({named.name, named.tensor.dtype(), named.tensor.shape()});
  }
  const std::map<std::string, std::string> metadata = {
      {"assay_version", kVersion},
      {"format", format.Name()},
      {"rows", nlohmann::json(report.reasons).dump()},
      {"seed", std::to_string(options.seed)}};
  constexpr std::string_view kAll = "vectors.safetensors";
  const auto writer = SafetensorsWriter::ToFile(folder.FilePath(kAll), specs, metadata);
  for (const NamedTensor& named : tensors) writer->Write(named.name, named.tensor.bytes());
  writer->Commit();
  report.files.emplace_back(kAll);
  for (const NamedTensor& named : tensors) {
    report.files.push_back(named.name + ".npy");
    WriteFile(folder.FilePath(report.files.back()), NpyFile(named.tensor));
  }
  report.files.emplace_back("README.md");
  WriteFile(folder.FilePath("README.md"), Readme(report, tensors));
  folder.Commit();
  return report;
}

}  // namespace assay
