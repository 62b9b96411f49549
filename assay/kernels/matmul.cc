#include "assay/kernels/matmul.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "assay/base/error.h"
#include "assay/kernels/error_bounds.h"
#include "assay/kernels/strategies.h"
#include "assay/numeric/bulk.h"

namespace assay {
namespace {

constexpr std::array<std::pair<Strategy, std::string_view>, 4> kNames = {{
    {Strategy::kReference, "reference"},
    {Strategy::kDequantGemm, "dequant_gemm"},
    {Strategy::kFused, "fused"},
    {Strategy::kFusedA8, "fused-a8"},
}};

DecodeRounding DefaultRounding(Strategy strategy) {
  return strategy == Strategy::kDequantGemm ? DecodeRounding::kCheckpoint : DecodeRounding::kNone;
}

void RequireFloat(DType dtype, std::string_view what) {
  if (dtype != DType::kF32 && dtype != DType::kBF16) {
    ThrowUsage("matmul: {} as F32 or BF16 expected, found {}", what, NameOf(dtype));
  }
}

void RequireBytes(std::string_view what, size_t found, int64_t rows, int64_t cols, DType dtype) {
  const auto expected = Shape{rows, cols}.CheckedNumBytes(dtype);
  if (!expected || static_cast<size_t>(*expected) != found) {
    ThrowInternal("matmul: {} [{}, {}] of {}: {} bytes do not fit", what, rows, cols, NameOf(dtype),
                  found);
  }
}

}  // namespace

std::string_view NameOf(Strategy strategy) noexcept {
  return kNames[static_cast<size_t>(strategy)].second;
}

Strategy ParseStrategy(std::string_view name) {
  for (const auto& [strategy, known] : kNames) {
    if (known == name) return strategy;
  }
  ThrowUsage("unknown strategy \"{}\"; known: reference, dequant_gemm, fused, fused-a8", name);
}

Matmul::Matmul(EncodedMatrix weight, Strategy strategy, const MatmulOptions& options)
    : weight_(std::move(weight)),
      strategy_(strategy),
      options_(options),
      rounding_(options.weight_rounding.value_or(DefaultRounding(strategy))) {}

void Matmul::Run(int64_t num_x_rows, std::span<const std::byte> x, std::span<std::byte> y) {
  if (num_x_rows < 0) ThrowInternal("matmul: {} rows of x", num_x_rows);
  RequireBytes("x", x.size(), num_x_rows, cols(), options_.x_dtype);
  RequireBytes("y", y.size(), num_x_rows, rows(), options_.y_dtype);
  if (num_x_rows == 0 || rows() == 0) return;
  const auto count = static_cast<size_t>(num_x_rows * rows());
  if (cols() == 0) {
    std::ranges::fill(y, std::byte{0});
    return;
  }
  const Activations activations(options_.x_dtype, num_x_rows, cols(), x);
  if (options_.y_dtype == DType::kF32) {
    Multiply(activations, reinterpret_cast<float*>(y.data()));
    return;
  }
  AlignedBuffer<float> product(count);
  Multiply(activations, product.data());
  Round(Element::kBF16, {product.data(), count}, y);
}

void Matmul::ErrorBounds(int64_t num_x_rows, std::span<const std::byte> x,
                         std::span<double> bounds) const {
  RequireBytes("x", x.size(), num_x_rows, cols(), options_.x_dtype);
  if (bounds.size() != static_cast<size_t>(num_x_rows * rows())) {
    ThrowInternal("matmul: {} bounds for [{}, {}]", bounds.size(), num_x_rows, rows());
  }
  if (bounds.empty()) return;
  const Activations activations(options_.x_dtype, num_x_rows, cols(), x);
  ComputeErrorBounds(weight_, rounding_, activations, Bound(),
                     strategy_ == Strategy::kFusedA8 ? A8Group(weight_) : 0, bounds);
}

std::unique_ptr<Matmul> MakeMatmul(const EncodedMatrix& weight, Strategy strategy,
                                   const MatmulOptions& options) {
  RequireFloat(options.x_dtype, "activations");
  RequireFloat(options.y_dtype, "results");
  const auto begin = std::chrono::steady_clock::now();
  std::unique_ptr<Matmul> matmul;
  switch (strategy) {
    case Strategy::kReference:
      matmul = MakeReference(weight, options);
      break;
    case Strategy::kDequantGemm:
      matmul = MakeDequantGemm(weight, options);
      break;
    case Strategy::kFused:
    case Strategy::kFusedA8:
      matmul = MakeFused(weight, strategy, options);
      break;
  }
  matmul->pack_seconds_ =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return matmul;
}

}  // namespace assay
