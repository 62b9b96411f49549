#include "assay/studies/parity.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/catalogue.h"
#include "assay/kernels/dense.h"
#include "assay/kernels/error_bounds.h"
#include "assay/measure/timing.h"
#include "assay/numeric/bulk.h"

namespace assay {
namespace {

constexpr std::string_view kSuffix = ".weight";

const Weight& FindWeight(const Model& model, const std::string& name) {
  for (const std::string& candidate : {name, name + std::string(kSuffix)}) {
    if (const Weight* weight = model.FindWeight(candidate)) return *weight;
  }
  std::vector<std::string> near;
  const std::string tail = name.substr(name.rfind('.') + 1);
  for (const Weight& weight : model.Weights()) {
    if (!weight.plain() && weight.name().find(tail) != std::string::npos) {
      near.push_back(weight.name());
    }
  }
  constexpr size_t kSuggestions = 3;
  near.resize(std::min(near.size(), kSuggestions));
  ThrowInput("{}: no weight {}{}{}", model.Path(), Quoted(name), near.empty() ? "" : "; there is ",
             fmt::join(near, ", "));
}

std::vector<float> WidenBF16(std::span<const std::byte> codes) {
  std::vector<float> values(codes.size() / sizeof(uint16_t));
  Widen(Element::kBF16, codes, values);
  return values;
}

/// Lanes of the reference: one for each position of a group, as the GPU kernel has threads.
int64_t LanesFor(const std::optional<GroupGeometry>& geometry) {
  constexpr int64_t kDefault = 32;
  constexpr int64_t kLargestGroup = 128;
  if (!geometry || geometry->group_size % kDefault != 0 || geometry->group_size > kLargestGroup) {
    return kDefault;
  }
  return geometry->group_size;
}

/// Row by row in the stated order, the weights unrounded; y rounded once.
std::vector<float> ReferenceProduct(const EncodedMatrix& weight, std::span<const float> x,
                                    int64_t num_lanes) {
  std::vector<float> y(static_cast<size_t>(weight.rows));
  constexpr int64_t kRows = 16;
  ParallelFor(0, weight.rows, kRows, [&](int64_t first, int64_t last) {
    std::vector<float> rows(static_cast<size_t>((last - first) * weight.cols));
    weight.format->DecodeRows(weight, first, last - first, rows, DecodeRounding::kNone);
    for (int64_t row = first; row < last; ++row) {
      const auto w = std::span(rows).subspan(static_cast<size_t>((row - first) * weight.cols),
                                             static_cast<size_t>(weight.cols));
      y[static_cast<size_t>(row)] = RoundToBF16(LaneDot(w, x, num_lanes, LaneArithmetic::kFused));
    }
  });
  return y;
}

/// Dequantise to bf16, then the dense library, block of rows after block of rows.
std::vector<float> DequantProduct(const EncodedMatrix& weight, std::span<const std::byte> x_codes,
                                  std::span<const float> x, const ProgressSink& progress) {
  std::vector<float> y(static_cast<size_t>(weight.rows));
  const int64_t rows_per_block = RowsPerChunk(weight.cols, int64_t{1} << 24);
  const bool in_bf16 = DenseSupports(DType::kBF16);
  Progress state{.num_items = weight.rows, .num_bytes = weight.NumBytes()};
  for (int64_t first = 0; first < weight.rows; first += rows_per_block) {
    const int64_t count = std::min(rows_per_block, weight.rows - first);
    std::vector<std::byte> codes(static_cast<size_t>(count * weight.cols) * sizeof(uint16_t));
    weight.format->DecodeRowsTo(weight, first, count, DType::kBF16, codes);
    float* const out = y.data() + first;
    if (in_bf16) {
      DenseProduct(DType::kBF16, 1, count, weight.cols, x_codes.data(), codes.data(), out);
    } else {
      const std::vector<float> values = WidenBF16(codes);
      DenseProduct(DType::kF32, 1, count, weight.cols, x.data(), values.data(), out);
    }
    state.items_done = first + count;
    state.bytes_done = state.num_bytes / weight.rows * state.items_done;
    if (progress) progress(state);
  }
  for (float& value : y) value = RoundToBF16(value);
  return y;
}

}  // namespace

ParityReport RunParity(const ParityOptions& options) {
  const Stopwatch watch;
  const Model model = Model::Open(options.model);
  const Weight& weight = FindWeight(model, options.tensor);
  if (options.matrix < 0 || options.matrix >= weight.stack()) {
    ThrowUsage("{}: matrix {} of a stack of {}", weight.name(), options.matrix, weight.stack());
  }
  const EncodedMatrix encoded = weight.Encoded(options.matrix);

  ParityReport report;
  report.options = options;
  report.tensor_base = weight.name();
  if (report.tensor_base.ends_with(kSuffix)) {
    report.tensor_base.resize(report.tensor_base.size() - kSuffix.size());
  }
  report.format = weight.format();
  report.family = FamilyOf(report.format->Name()).name;
  report.rows = encoded.rows;
  report.cols = encoded.cols;
  report.geometry = report.format->Geometry();
  report.notes = weight.notes();
  if (encoded.rows > 0)
    report.packed_cols = encoded.planes.front().tensor.num_bytes() / encoded.rows;

  const std::vector<uint16_t> x_codes = ParityInput(options.seed, encoded.cols);
  const auto x_bytes = std::as_bytes(std::span(x_codes));
  const std::vector<float> x = WidenBF16(x_bytes);
  std::vector<double> lhs_bounds(static_cast<size_t>(encoded.rows));
  std::string lhs_formula;
  if (options.strategy == Strategy::kReference) {
    const int64_t num_lanes = LanesFor(report.geometry);
    report.lhs = ReferenceProduct(encoded, x, num_lanes);
    report.lhs_implementation =
        fmt::format("row by row in f32, {} lanes, one rounding per product", num_lanes);
    // A lane's sum, the tree over lanes, and the decoding of the weights in f32.
    const Accuracy accuracy{false, static_cast<double>(encoded.cols / num_lanes + 16) * 0x1p-24, 1,
                            fmt::format("(K/{} + 16) · 2^-24", num_lanes)};
    ComputeErrorBounds(encoded, DecodeRounding::kNone,
                       Activations(DType::kBF16, 1, encoded.cols, x_bytes), accuracy, 0,
                       lhs_bounds);
    lhs_formula = accuracy.formula;
  } else {
    const std::unique_ptr<Matmul> matmul = MakeMatmul(
        encoded, options.strategy,
        {.x_dtype = DType::kBF16, .y_dtype = DType::kBF16, .weight_rounding = std::nullopt});
    std::vector<std::byte> y(static_cast<size_t>(encoded.rows) * sizeof(uint16_t));
    matmul->Run(1, x_bytes, y);
    report.lhs = WidenBF16(y);
    report.lhs_implementation = matmul->Implementation();
    matmul->ErrorBounds(1, x_bytes, lhs_bounds);
    lhs_formula = matmul->Bound().exact ? "exact" : matmul->Bound().formula;
  }
  report.rhs = DequantProduct(encoded, x_bytes, x, options.progress);
  report.rhs_implementation =
      fmt::format("dequantised to bf16, then {} {} with f32 sums", DenseLibraryName(),
                  DenseSupports(DType::kBF16) ? "bf16" : "f32");
  report.lhs_name = fmt::format("{}_{}_gemv", NameOf(options.strategy), report.family);
  std::ranges::replace(report.lhs_name, '-', '_');
  model.Verify();

  constexpr size_t kShown = 8;
  report.x.assign(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, x.size())));
  report.figures = MeasureParity(report.lhs, report.rhs);
  report.stats = MeasureErrors(report.lhs, report.rhs);
  const std::unique_ptr<Matmul> dense = MakeMatmul(encoded, Strategy::kDequantGemm);
  std::vector<double> rhs_bounds(lhs_bounds.size());
  dense->ErrorBounds(1, x_bytes, rhs_bounds);
  report.bound = MeasureParityBound(encoded, x, {report.lhs, lhs_bounds, lhs_formula},
                                    {report.rhs, rhs_bounds, dense->Bound().formula},
                                    report.figures.max_abs_index);
  if (options.max_rmse_over_rhs_rms) {
    report.passed = report.figures.rmse_over_rhs_rms <= *options.max_rmse_over_rhs_rms;
  }
  report.seconds = watch.Seconds();
  return report;
}

}  // namespace assay
