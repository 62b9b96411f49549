#include <cmath>
#include <utility>
#include <vector>

#include "assay/formats/ggml.h"
#include "assay/formats/ggml_blocks.h"
#include "assay/kernels/block_kernels.h"
#include "assay/kernels/ggml_kernels.h"
#include "assay/kernels/simd_avx512.h"

namespace assay {
namespace {

const GgmlType* TypeOf(const EncodedMatrix& weight) {
  const auto* format = dynamic_cast<const GgmlFormat*>(weight.format.get());
  return format == nullptr ? nullptr : &format->type();
}

/// A kernel on planes that preparation made.
class Repacked final : public ProductKernel {
 public:
  Repacked(std::unique_ptr<ProductKernel> kernel, int64_t num_bytes)
      : kernel_(std::move(kernel)), num_bytes_(num_bytes) {}

  std::string Name() const override { return kernel_->Name(); }
  int64_t PreparedBytes() const override { return num_bytes_ + kernel_->PreparedBytes(); }
  Accuracy Bound() const override { return kernel_->Bound(); }
  bool Run(const Activations& x, float* y) override { return kernel_->Run(x, y); }

 private:
  std::unique_ptr<ProductKernel> kernel_;
  int64_t num_bytes_;
};

/// The bytes of the planes count once, for the first kernel: the others share them.
void AddRepacked(std::vector<std::unique_ptr<ProductKernel>> found, const EncodedMatrix& planes,
                 std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  int64_t num_bytes = planes.NumBytes();
  for (auto& kernel : found) {
    kernels.push_back(
        std::make_unique<Repacked>(std::move(kernel), std::exchange(num_bytes, int64_t{0})));
  }
}

void AddGgmlKernels(const KernelRequest& request,
                    std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  const EncodedMatrix& weight = request.weight;
  const GgmlType* type = TypeOf(weight);
  // A second copy of the planes for the few x that int8 kernels decline would be too dear.
  if (type == nullptr || request.beside_a8 || weight.rows == 0 || weight.cols == 0) return;
  std::vector<std::unique_ptr<ProductKernel>> found;
  if (type->name == "MXFP4") {
    if (const auto planes = RepackGgmlMxfp4(weight)) {
      kBlockKernels.add_kernels({*planes, request.rounding, request.a8}, found);
      AddRepacked(std::move(found), *planes, kernels);
    }
    return;
  }
  const GgmlPacking* packing = FindGgmlPacking(*type);
  if (packing == nullptr) return;
  if (HasAvx512Vnni()) {
    if (const auto planes = RepackGgml(weight, *packing)) {
      found.push_back(MakeGgmlDigits(*planes, *packing, request.a8));
      AddRepacked(std::move(found), *planes, kernels);
    }
  } else if (!request.a8) {
    if (const auto planes = WidenGgml(weight, *packing)) {
      found.push_back(MakeGgmlLanes(*planes, *packing));
      AddRepacked(std::move(found), *planes, kernels);
    }
  }
}

/// |scale · code| + |minimum|: the folded form adds the two terms of a weight apart.
bool GgmlTermMagnitudes(const EncodedMatrix& weight, int64_t row, std::span<double> out) {
  const GgmlType* type = TypeOf(weight);
  if (type == nullptr) return false;
  using ggml_internal::kGroup;
  const size_t groups = out.size() / kGroup;
  std::vector<int8_t> codes(out.size());
  std::vector<float> scales(groups);
  std::vector<float> mins(groups);
  const int64_t row_blocks = weight.cols / type->block_values;
  const auto* blocks = reinterpret_cast<const uint8_t*>(weight.Get("blocks").bytes().data());
  ggml_internal::UnpackBlocks(*type, blocks + row * row_blocks * type->block_bytes,
                              static_cast<size_t>(row_blocks),
                              {codes.data(), scales.data(), mins.data()});
  for (size_t c = 0; c < out.size(); ++c) {
    const auto scale = static_cast<double>(scales[c / kGroup]);
    const auto min = static_cast<double>(mins[c / kGroup]);
    out[c] = std::fabs(scale * codes[c]) + std::fabs(min);
  }
  return true;
}

}  // namespace

const KernelFamily kGgmlKernels = {
    .name = "ggml", .add_kernels = AddGgmlKernels, .term_magnitudes = GgmlTermMagnitudes};

}  // namespace assay
