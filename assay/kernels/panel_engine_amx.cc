#include "assay/kernels/panel_engine_amx.h"

#include "assay/kernels/amx_permission.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/formats/catalogue.h"
#include "assay/kernels/panel_engine.h"
#include "assay/kernels/panel_engine_f32.h"
#include "assay/kernels/panel_source.h"
#include "assay/kernels/panel_tiles_amx-inl.h"

namespace assay {
namespace {

struct TileWorkspace {
  AlignedBuffer<uint16_t> panel;  ///< first term, second term, finite first term
  AlignedBuffer<float> values;    ///< of a panel that is to be split
  AlignedBuffer<float> sums;
  AlignedBuffer<uint16_t> staged_words;
  AlignedBuffer<float> staged_values;
};

/// True when the values under this rounding are bf16 numbers.
bool HoldsBF16(const EncodedMatrix& weight, DecodeRounding rounding) {
  return weight.format->Name() == "bf16" || weight.format->Name() == "packed12" ||
         (rounding == DecodeRounding::kCheckpoint && weight.dtype == DType::kBF16 &&
          FamilyOf(weight.format->Name()).name != "plain");
}

class TilePanelEngine final : public ProductKernel {
 public:
  TilePanelEngine(const KernelRequest& request, int64_t min_x_rows)
      : rows_(request.weight.rows),
        cols_(request.weight.cols),
        min_x_rows_(min_x_rows),
        write_y_(ActiveF32PanelKernel().write_y) {
    if (HoldsBF16(request.weight, request.rounding)) {
      words_.emplace(request.weight, request.rounding, kBlockK);
    } else {
      values_.emplace(request.weight, request.rounding, kBlockK);
    }
  }

  std::string Name() const override {
    return fmt::format("panels in {}, 32 x 32 sums in tiles, M >= {}, AMX",
                       words_ ? "bf16" : "bf16 pairs", min_x_rows_);
  }

  Accuracy Bound() const override {
    // A sum is rounded once for each tile product. A factor of two terms is 2^-17 of it off, the
    // product of two second terms up to 2^-16.
    const int products = (words_ ? 1 : 2) + (x_terms_ == 2 ? 1 : 0);
    constexpr std::array<double, 4> kSplit = {0, 0, 0x1p-17, 0x1p-15};
    constexpr std::array<const char*, 4> kFormulas = {
        "", "(K + 96) · 2^-24", "(2 K + 96) · 2^-24 + 2^-17", "(3 K + 96) · 2^-24 + 2^-15"};
    const auto at = static_cast<size_t>(products);
    return {.coefficient = (static_cast<double>(products * cols_) + 96) * 0x1p-24 + kSplit[at],
            .formula = kFormulas[at],
            .flush = 0x1p-124};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() < min_x_rows_) return false;
    const int64_t x_block =
        RoundUp(CeilDiv(x.num_rows(), CeilDiv(x.num_rows(), kMaxXBlock)), kXTile);
    const int64_t max_rows =
        words_ ? words_->MaxRows(kMaxRowBlock) : values_->MaxRows(kMaxRowBlock);
    const int64_t threads = NumThreads();
    const int64_t row_block = RoundUp(std::min(max_rows, CeilDiv(rows_, threads * 2)), kPanelRows);
    const bool stream = x.num_rows() * rows_ * int64_t{sizeof(float)} >= kStreamBytes &&
                        reinterpret_cast<uintptr_t>(y) % 16 == 0 && rows_ % 4 == 0;
    for (int64_t m = 0; m < x.num_rows(); m += x_block) {
      const int64_t num_x = std::min(x_block, x.num_rows() - m);
      if (!Pack(x, m, num_x)) return false;
      ParallelFor(0, rows_, row_block, [&](int64_t first, int64_t last) {
        Rows(first, last, num_x, stream, y + m * rows_);
      });
    }
    return true;
  }

 private:
  /// False when bf16 cannot hold this x.
  bool Pack(const Activations& x, int64_t first_row, int64_t num_x) {
    width_ = RoundUp(num_x, kHalfXTile);
    const auto count = static_cast<size_t>(width_ * RoundUp(cols_, kStep));
    const int64_t max_terms = x.dtype() == DType::kBF16 ? 1 : 2;
    for (int64_t t = 0; t < max_terms; ++t) x_[static_cast<size_t>(t)].Resize(count);
    std::atomic<bool> fits = true;
    std::atomic<bool> second = false;
    ParallelFor(0, cols_, kBlockK, [&](int64_t first, int64_t last) {
      const int64_t padded = RoundUp(last - first, kStep);
      for (int64_t t = 0; t < max_terms; ++t) {
        std::memset(x_[static_cast<size_t>(t)].data() + first * width_, 0,
                    static_cast<size_t>(width_ * padded) * sizeof(uint16_t));
      }
      for (int64_t j = 0; j < num_x; j += kHalfXTile) {
        const int64_t tile = j / kXTile * kXTile;
        const int64_t at = first * width_ + tile * padded + (j - tile) / kHalfXTile * kTileWords;
        const Packed packed =
            PackRows(x, first_row + j, std::min(kHalfXTile, num_x - j), first, last - first,
                     std::min(kXTile, width_ - tile) / kHalfXTile * kTileWords, x_[0].data() + at,
                     max_terms == 2 ? x_[1].data() + at : nullptr);
        if (!packed.fits) fits = false;
        if (packed.second) second = true;
      }
    });
    x_terms_ = second ? 2 : 1;
    return fits;
  }

  void Rows(int64_t first, int64_t last, int64_t num_x, bool stream, float* y) const {
    thread_local TileWorkspace work;
    const int64_t c_stride = width_ + 16;
    work.panel.Resize(3 * kPanelWords);
    work.values.Resize(kPanelWords);
    // The prefetch of the next tile's sums runs past the last.
    work.sums.Resize(static_cast<size_t>(RoundUp(last - first, kPanelRows) * c_stride));
    if (words_) {
      words_->Stage(first, last - first, work.staged_words);
    } else {
      values_->Stage(first, last - first, work.staged_values);
    }
    ConfigureTiles();
    for (int64_t k = 0; k < cols_; k += kBlockK) {
      const int64_t count = std::min(kBlockK, cols_ - k);
      const int64_t padded = RoundUp(count, kStep);
      Factors factors{
          .w = {work.panel.data(), work.panel.data() + kPanelWords},
          .w_finite = work.panel.data(),
          .x = {x_[0].data() + k * width_, x_terms_ == 2 ? x_[1].data() + k * width_ : nullptr},
          .w_terms = 1,
          .x_terms = x_terms_,
          .steps = padded / kStep};
      for (int64_t row = first; row < last; row += kPanelRows) {
        const int64_t rows = std::min(kPanelRows, last - row);
        factors.w_terms = DecodePanel(first, row, rows, k, count, work);
        if (x_terms_ == 2) {
          uint16_t* finite = work.panel.data() + 2 * kPanelWords;
          factors.w_finite = CopyFinite(work.panel.data(), count, finite) ? finite : factors.w[0];
        }
        float* c = work.sums.data() + (row - first) * c_stride;
        int64_t j = 0;
        for (; j + kXTile <= width_; j += kXTile) {
          MultiplyTiles<2>(factors, j * padded, k > 0, c + j, c_stride);
        }
        if (j < width_) MultiplyTiles<1>(factors, j * padded, k > 0, c + j, c_stride);
      }
    }
    ReleaseTiles();
    write_y_(work.sums.data(), c_stride, last - first, num_x, stream, y + first, rows_);
  }

  /// Returns the number of terms; missing rows and columns are 0.
  int64_t DecodePanel(int64_t first, int64_t row, int64_t rows, int64_t col, int64_t count,
                      TileWorkspace& work) const {
    if (words_) {
      words_->Decode(first, row, rows, col, count, work.staged_words, work.panel.data(),
                     kPanelStride);
      ClearEdges(work.panel.data(), rows, count);
      return 1;
    }
    values_->Decode(first, row, rows, col, count, work.staged_values, work.values.data(),
                    kPanelStride);
    ClearEdges(work.values.data(), rows, count);
    return SplitPanel(work.values.data(), kPanelRows, count, work.panel.data(),
                      work.panel.data() + kPanelWords)
               ? 2
               : 1;
  }

  template <typename T>
  static void ClearEdges(T* panel, int64_t rows, int64_t count) {
    const int64_t padded = RoundUp(count, kStep);
    for (int64_t r = 0; r < rows && padded > count; ++r) {
      std::fill_n(panel + r * kPanelStride + count, padded - count, T{});
    }
    for (int64_t r = rows; r < kPanelRows; ++r) std::fill_n(panel + r * kPanelStride, padded, T{});
  }

  int64_t rows_;
  int64_t cols_;
  int64_t min_x_rows_;
  void (*write_y_)(const float*, int64_t, int64_t, int64_t, bool, float*, int64_t);
  std::optional<PanelSource<uint16_t>> words_;
  std::optional<PanelSource<float>> values_;
  std::array<AlignedBuffer<uint16_t>, 2> x_;
  int64_t x_terms_ = 1;
  int64_t width_ = 0;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeTilePanelEngine(const KernelRequest& request,
                                                   int64_t min_x_rows) {
  if (!HasAmxBF16()) return nullptr;
  return std::make_unique<TilePanelEngine>(request, min_x_rows);
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeTilePanelEngine(const KernelRequest&, int64_t) {
  return nullptr;
}

}  // namespace assay

#endif
