#include "assay/kernels/generic_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "assay/base/parallel.h"
#include "assay/kernels/panel_product.h"

namespace assay {
namespace {

/// Half of a 512 KiB second-level cache: the panel stays there while every row of x passes.
constexpr int64_t kPanelValues = int64_t{1} << 16;

class GenericProduct final : public ProductKernel {
 public:
  explicit GenericProduct(const KernelRequest& request)
      : rows_(request.weight.rows),
        cols_(request.weight.cols),
        decoder_(MakePanelDecoder(request.weight, request.rounding)) {}

  std::string Name() const override {
    return fmt::format("decoded f32 panels, {}", PanelProductTarget());
  }

  Accuracy Bound() const override {
    return {false, PanelProductCoefficient(cols_), 1, "(K/4 + 8) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    const float* values = x.F32();
    const int64_t panel_rows =
        std::clamp<int64_t>(kPanelValues / std::max<int64_t>(1, cols_), 1, 64);
    ParallelFor(0, rows_, panel_rows, [&](int64_t first, int64_t last) {
      thread_local AlignedBuffer<float> panel;
      panel.Resize(static_cast<size_t>((last - first) * cols_));
      decoder_->DecodeF32(first, last - first, 0, cols_, panel.data(), cols_);
      PanelProduct(values, x.num_rows(), cols_, panel.data(), last - first, cols_, cols_, y + first,
                   rows_);
    });
    return true;
  }

 private:
  int64_t rows_;
  int64_t cols_;
  std::unique_ptr<PanelDecoder> decoder_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeGenericProduct(const KernelRequest& request) {
  return std::make_unique<GenericProduct>(request);
}

}  // namespace assay
