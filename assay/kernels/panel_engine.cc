#include "assay/kernels/panel_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/affine.h"
#include "assay/kernels/amx_permission.h"
#include "assay/kernels/panel_engine_amx.h"
#include "assay/kernels/panel_engine_f32.h"
#include "assay/kernels/panel_source.h"

namespace assay {
namespace {

struct Workspace {
  AlignedBuffer<float> panel;
  AlignedBuffer<float> sums;
  AlignedBuffer<float> staged;
};

/// Fewest rows of x that go to the engine. Fixed, so that bits do not depend on timing.
/// Why: up to x_grain rows cost the same. With 16 lanes that is 10 to 12 rows of the kernels of
/// affine codes up to 6 bits; the other kernels, and AMX's, stay ahead up to 16.
int64_t SwitchOver(const KernelRequest& request, const F32PanelKernel& kernel, bool beside_family) {
  if (!beside_family) return kernel.x_grain;
  const auto* affine = dynamic_cast<const AffineFormat*>(request.weight.format.get());
  const bool slow = affine != nullptr && affine->bits() <= 6 && kernel.x_grain == 16;
  return slow && !HasAmxBF16() ? 12 : 17;
}

class PanelEngine final : public ProductKernel {
 public:
  PanelEngine(const KernelRequest& request, bool beside_family)
      : rows_(request.weight.rows),
        cols_(request.weight.cols),
        kernel_(ActiveF32PanelKernel()),
        min_x_rows_(SwitchOver(request, kernel_, beside_family)),
        source_(request.weight, request.rounding, kernel_.k_block),
        target_(ActiveTargetName()) {}

  std::string Name() const override {
    return fmt::format("panels in f32, {} x {} sums, M >= {}, {}", kernel_.row_tile, kernel_.x_tile,
                       min_x_rows_, target_);
  }

  Accuracy Bound() const override {
    const int64_t chain = std::min(cols_, kernel_.k_block);
    const int64_t blocks = CeilDiv(cols_, kernel_.k_block);
    // A chain of multiply-adds a block (the product rounded apart where they are not fused).
    return {false, (static_cast<double>(chain + blocks) + 4) * 0x1p-24, 1,
            fmt::format("(min(K, {0}) + K/{0} + 4) · 2^-24", kernel_.k_block)};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() < min_x_rows_) return false;
    const float* values = x.F32();
    const int64_t threads = NumThreads();
    const int64_t x_blocks = CeilDiv(x.num_rows(), kMaxXBlock);
    const int64_t x_block = RoundUp(CeilDiv(x.num_rows(), x_blocks), kernel_.x_tile);
    // Whole panels, and blocks of y that begin on a line.
    const int64_t row_block = RoundUp(
        std::min({kMaxRowBlock, source_.MaxRows(kMaxRowBlock), CeilDiv(rows_, threads * 2)}),
        std::lcm(kernel_.panel_rows, int64_t{16}));
    const bool stream = x.num_rows() * rows_ * int64_t{sizeof(float)} >= kStreamBytes &&
                        reinterpret_cast<uintptr_t>(y) % 16 == 0 && rows_ % 4 == 0;
    for (int64_t m = 0; m < x.num_rows(); m += x_block) {
      const int64_t num_x = std::min(x_block, x.num_rows() - m);
      Pack(values + m * cols_, num_x);
      ParallelFor(0, rows_, row_block, [&](int64_t first, int64_t last) {
        Rows(first, last, num_x, stream, y + m * rows_);
      });
    }
    return true;
  }

 private:
  void Pack(const float* x, int64_t num_x) {
    const int64_t width = RoundUp(num_x, kernel_.x_grain);
    x_.Resize(static_cast<size_t>(width * cols_));
    ParallelFor(0, cols_, kernel_.k_block, [&](int64_t first, int64_t last) {
      for (int64_t j = 0; j < width; j += kernel_.x_tile) {
        kernel_.pack_x(x + j * cols_ + first, std::min(kernel_.x_tile, num_x - j), cols_,
                       last - first, std::min(kernel_.x_tile, width - j),
                       x_.data() + first * width + j * (last - first));
      }
    });
  }

  void Rows(int64_t first, int64_t last, int64_t num_x, bool stream, float* y) const {
    thread_local Workspace work;
    const int64_t width = RoundUp(num_x, kernel_.x_grain);
    const int64_t c_stride = width + 16;
    const int64_t padded_rows = RoundUp(last - first, kernel_.row_tile);
    work.panel.Resize(static_cast<size_t>(kernel_.panel_rows * kernel_.panel_stride));
    work.sums.Resize(static_cast<size_t>(padded_rows * c_stride));
    source_.Stage(first, last - first, work.staged);
    for (int64_t k = 0; k < cols_; k += kernel_.k_block) {
      const int64_t count = std::min(kernel_.k_block, cols_ - k);
      for (int64_t row = first; row < last; row += kernel_.panel_rows) {
        const int64_t rows = std::min(kernel_.panel_rows, last - row);
        source_.Decode(first, row, rows, k, count, work.staged, work.panel.data(),
                       kernel_.panel_stride);
        const int64_t tiles = CeilDiv(rows, kernel_.row_tile);
        for (int64_t r = rows; r < tiles * kernel_.row_tile; ++r) {
          std::fill_n(work.panel.data() + r * kernel_.panel_stride, count, 0.0f);
        }
        kernel_.multiply(work.panel.data(), tiles, x_.data() + k * width, width, count, k > 0,
                         work.sums.data() + (row - first) * c_stride, c_stride);
      }
    }
    kernel_.write_y(work.sums.data(), c_stride, last - first, num_x, stream, y + first, rows_);
  }

  int64_t rows_;
  int64_t cols_;
  F32PanelKernel kernel_;
  int64_t min_x_rows_;
  PanelSource<float> source_;
  std::string target_;
  AlignedBuffer<float> x_;
};

}  // namespace

void AddPanelEngines(const KernelRequest& request, bool beside_family,
                     std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  if (auto tiles = MakeTilePanelEngine(request, beside_family ? 17 : 4)) {
    kernels.push_back(std::move(tiles));
  }
  kernels.push_back(std::make_unique<PanelEngine>(request, beside_family));
}

}  // namespace assay
