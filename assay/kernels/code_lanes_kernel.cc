// The kernel around code_lanes.h, for affine codes of 2, 4 and 8 bits, e2m1 blocks and ggml's.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "assay/base/parallel.h"
#include "assay/base/target.h"
#include "assay/formats/affine.h"
#include "assay/formats/ggml_blocks.h"
#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/block_kernels.h"
#include "assay/kernels/code_lanes.h"
#include "assay/kernels/ggml_kernels.h"

namespace assay {
namespace {

constexpr int64_t kMaxXRows = 16;

class CodeLanes final : public ProductKernel {
 public:
  /// `product`: planes and shape; x is filled in here. `table`: of scale bytes, empty without.
  /// `factor`: a power of two that the weights are multiplied by.
  CodeLanes(const EncodedMatrix& weight, LaneCodes codes, const LaneProduct& product,
            std::vector<float> table, std::string what, float factor = 1.0f)
      : weight_(weight),
        codes_(codes),
        factor_(factor),
        table_(std::move(table)),
        what_(std::move(what)),
        target_(ActiveTargetName()),
        functions_(ActiveLaneFunctions()),
        product_(product) {
    product_.scale_table = table_.empty() ? nullptr : table_.data();
    product_.group_shift = std::countr_zero(static_cast<uint64_t>(product.group));
    product_.x_stride = functions_.arrange(codes_, factor_, nullptr, weight.cols, nullptr);
    product_.sums_stride = weight.cols / product.group + kGroupPadding;
  }

  std::string Name() const override {
    return fmt::format("{} codes in their words times f32 x, {}", what_, target_);
  }

  Accuracy Bound() const override {
    // Chains of K / 16 on the narrowest target, products rounded apart where not fused.
    return {false, (static_cast<double>(weight_.cols) / 8 + 40) * 0x1p-24, 1, "(K/8 + 40) · 2^-24"};
  }

  bool Run(const Activations& x, float* y) override {
    // Infinities would meet codes of 0; tiny x would lose bits to the division by powers of two.
    if (x.num_rows() > kMaxXRows || !x.AllFinite() || x.HasTiny()) return false;
    const float* values = x.F32();
    product_.num_x = x.num_rows();
    x_.Resize(static_cast<size_t>(x.num_rows() * product_.x_stride));
    sums_.Resize(static_cast<size_t>(x.num_rows() * product_.sums_stride));
    std::fill_n(sums_.data(), sums_.size(), 0.0f);
    for (int64_t m = 0; m < x.num_rows(); ++m) {
      const float* row = values + m * x.cols();
      functions_.arrange(codes_, factor_, row, x.cols(), x_.data() + m * product_.x_stride);
      for (int64_t g = 0; g < x.cols() / product_.group; ++g) {
        double sum = 0;
        for (int64_t i = 0; i < product_.group; ++i) {
          sum += static_cast<double>(row[g * product_.group + i]);
        }
        sums_[static_cast<size_t>(m * product_.sums_stride + g)] = static_cast<float>(sum);
      }
    }
    product_.x = x_.data();
    product_.sums = sums_.data();
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, 1), [&](int64_t first, int64_t last) {
      functions_.rows(codes_, product_, first, last, y);
    });
    return true;
  }

 private:
  EncodedMatrix weight_;
  LaneCodes codes_;
  float factor_;
  std::vector<float> table_;
  std::string what_;
  std::string target_;
  LaneFunctions functions_;
  LaneProduct product_;
  AlignedBuffer<float> x_;
  AlignedBuffer<float> sums_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineLanes(const EncodedMatrix& weight) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr) return nullptr;
  const int bits = format->bits();
  if (bits != 2 && bits != 4 && bits != 8) return nullptr;
  LaneProduct product{};
  product.codes = weight.Get("codes").bytes().data();
  product.scales = weight.Get("scales").bytes().data();
  product.biases = weight.Get("biases").bytes().data();
  product.dtype = weight.dtype;
  product.rows = weight.rows;
  product.cols = weight.cols;
  product.group = format->group_size();
  const LaneCodes codes = bits == 2   ? LaneCodes::kAffine2
                          : bits == 4 ? LaneCodes::kAffine4
                                      : LaneCodes::kAffine8;
  return std::make_unique<CodeLanes>(weight, codes, product, std::vector<float>(),
                                     fmt::format("affine{}", bits));
}

std::unique_ptr<ProductKernel> MakeE2M1Lanes(const EncodedMatrix& weight, const BlockFormat& format,
                                             const BlockFormat::ScaleValues& scale_table) {
  if (format.element() != BlockElement::kE2M1) return nullptr;
  LaneProduct product{};
  product.codes = weight.Get("codes").bytes().data();
  product.scales = weight.Get("scales").bytes().data();
  product.table = ggml_internal::kTwiceE2M1.data();
  product.rows = weight.rows;
  product.cols = weight.cols;
  product.group = format.block();
  return std::make_unique<CodeLanes>(weight, LaneCodes::kTable4, product,
                                     std::vector<float>(scale_table.begin(), scale_table.end()),
                                     format.Name(), 0.5f);
}

std::unique_ptr<ProductKernel> MakeGgmlLanes(const EncodedMatrix& planes,
                                             const GgmlPacking& packing) {
  LaneProduct product{};
  product.codes = planes.Get("codes").bytes().data();
  product.scales = planes.Get("scales").bytes().data();
  if (packing.min_at >= 0) product.biases = planes.Get("biases").bytes().data();
  product.table = packing.table.data();
  product.dtype = DType::kF32;
  product.rows = planes.rows;
  product.cols = planes.cols;
  product.group = packing.group;
  const LaneCodes codes = packing.bits != 4       ? LaneCodes::kInt8
                          : packing.table.empty() ? LaneCodes::kAffine4
                                                  : LaneCodes::kTable4;
  return std::make_unique<CodeLanes>(planes, codes, product, std::vector<float>(),
                                     planes.format->Name());
}

}  // namespace assay
