#include "assay/kernels/gemm_probe.h"

#include <fmt/format.h>

#include "assay/kernels/dense.h"
#include "assay/numeric/random.h"
#include "assay/tensor/matrix_view.h"

namespace assay {
namespace {

/// Cheap values, but no zeros, which multiply faster on some machines.
Tensor Filled(DType dtype, int64_t rows, int64_t cols) {
  Tensor codes = Tensor::AllocateUninitialized(DType::kBF16, Shape{rows, cols});
  Lcg random;
  for (uint16_t& code : codes.mutable_as<uint16_t>()) code = random.NextBF16();
  if (dtype == DType::kBF16) return codes;
  Tensor values = Tensor::AllocateUninitialized(DType::kF32, codes.shape());
  MatrixView(codes.view(), rows, cols).ReadRows(0, rows, values.mutable_as<float>());
  return values;
}

}  // namespace

GemmProbe::GemmProbe()
    : dtype_(DenseSupports(DType::kBF16) ? DType::kBF16 : DType::kF32),
      x_(Filled(dtype_, kM, kK)),
      w_(Filled(dtype_, kN, kK)),
      y_(static_cast<size_t>(kM * kN)) {}

std::string GemmProbe::Name() const {
  return fmt::format("{}, {}", DenseLibraryName(), dtype_ == DType::kBF16 ? "bf16" : "f32");
}

void GemmProbe::Run() {
  DenseProduct(dtype_, kM, kN, kK, x_.bytes().data(), w_.bytes().data(), y_.data());
}

}  // namespace assay
