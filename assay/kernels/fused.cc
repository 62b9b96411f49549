#include <fmt/format.h>

#include <vector>

#include "assay/base/error.h"
#include "assay/kernels/generic_product.h"
#include "assay/kernels/panel_engine.h"
#include "assay/kernels/round_activations.h"
#include "assay/kernels/strategies.h"

namespace assay {
namespace {

/// The panel engine for many rows of x; else the family's kernels in their order, the generic one
/// last. Under fused-a8 a family's int8
/// kernels see the original x; what they decline is rounded here and multiplied exactly.
class Fused final : public Matmul {
 public:
  Fused(const EncodedMatrix& weight, Strategy strategy, const MatmulOptions& options)
      : Matmul(weight, strategy, options) {
    if (strategy == Strategy::kFusedA8) AddKernels(true, a8_kernels_);
    AddKernels(false, kernels_);
    AddPanelEngines({weight_, rounding_, false}, !kernels_.empty(), engines_);
    kernels_.push_back(MakeGenericProduct({weight_, rounding_, false}));
    last_ = a8_kernels_.empty() ? kernels_.front().get() : a8_kernels_.front().get();
  }

  int64_t prepared_bytes() const override {
    int64_t total = 0;
    for (const auto& kernel : a8_kernels_) total += kernel->PreparedBytes();
    for (const auto& kernel : kernels_) total += kernel->PreparedBytes();
    for (const auto& kernel : engines_) total += kernel->PreparedBytes();
    return total;
  }

  std::string Implementation() const override {
    return rounded_first_ ? fmt::format("int8-rounded x, {}", last_->Name()) : last_->Name();
  }

  Accuracy Bound() const override { return last_->Bound(); }

 protected:
  void Multiply(const Activations& x, float* y) override {
    rounded_first_ = false;
    if (RunFirst(a8_kernels_, x, y)) return;
    if (strategy_ == Strategy::kFused) {
      if (!RunExact(x, y)) ThrowInternal("fused: no kernel took x");
      return;
    }
    const auto count = static_cast<size_t>(x.num_rows() * x.cols());
    rounded_.Resize(count);
    RoundActivations(x.F32(), x.num_rows(), x.cols(), A8Group(weight_), rounded_.data());
    const Activations rounded(DType::kF32, x.num_rows(), x.cols(),
                              std::as_bytes(std::span(rounded_.data(), count)));
    rounded_first_ = true;
    if (!RunExact(rounded, y)) ThrowInternal("fused-a8: no kernel took x");
  }

 private:
  using Kernels = std::vector<std::unique_ptr<ProductKernel>>;

  void AddKernels(bool a8, Kernels& kernels) {
    for (const KernelFamily* family : KernelFamilies()) {
      if (family->add_kernels == nullptr) continue;
      family->add_kernels({weight_, rounding_, a8, !a8 && !a8_kernels_.empty()}, kernels);
    }
  }

  bool RunExact(const Activations& x, float* y) {
    return RunFirst(engines_, x, y) || RunFirst(kernels_, x, y);
  }

  bool RunFirst(const Kernels& kernels, const Activations& x, float* y) {
    for (const auto& kernel : kernels) {
      if (kernel->Run(x, y)) {
        last_ = kernel.get();
        return true;
      }
    }
    return false;
  }

  Kernels a8_kernels_;
  Kernels kernels_;
  Kernels engines_;
  const ProductKernel* last_;
  bool rounded_first_ = false;
  AlignedBuffer<float> rounded_;
};

}  // namespace

std::unique_ptr<Matmul> MakeFused(const EncodedMatrix& weight, Strategy strategy,
                                  const MatmulOptions& options) {
  return std::make_unique<Fused>(weight, strategy, options);
}

}  // namespace assay
