#include <cmath>
#include <vector>

#include "assay/base/error.h"
#include "assay/formats/affine.h"
#include "assay/kernels/affine_kernels.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

const AffineFormat* AsAffine(const EncodedMatrix& weight) {
  return dynamic_cast<const AffineFormat*>(weight.format.get());
}

void AddAffineKernels(const KernelRequest& request,
                      std::vector<std::unique_ptr<ProductKernel>>& kernels) {
  // The folded form s · (q·x) + b · Σx has no place for the rounding of single weights.
  if (AsAffine(request.weight) == nullptr || request.rounding != DecodeRounding::kNone) return;
  if (!request.a8) {
    if (auto kernel = MakeAffineTiles(request.weight)) kernels.push_back(std::move(kernel));
  }
  if (auto kernel = MakeAffineDigits(request.weight, request.a8)) {
    kernels.push_back(std::move(kernel));
  }
  if (request.a8) return;
  if (auto kernel = MakeAffineLanes(request.weight)) kernels.push_back(std::move(kernel));
}

/// |w − b| + |b|: the folded form adds the two terms of a weight apart.
bool AffineTermMagnitudes(const EncodedMatrix& weight, int64_t row, std::span<double> out) {
  const AffineFormat* format = AsAffine(weight);
  if (format == nullptr) return false;
  std::vector<float> values(out.size());
  weight.format->DecodeRows(weight, row, 1, values, DecodeRounding::kNone);
  std::vector<float> biases(static_cast<size_t>(weight.cols / format->group_size()));
  ReadFloats(weight.Get("biases").view(), row * static_cast<int64_t>(biases.size()), biases);
  for (size_t c = 0; c < out.size(); ++c) {
    const auto bias = static_cast<double>(biases[c / static_cast<size_t>(format->group_size())]);
    // The value itself was rounded twice: two more units of the terms.
    out[c] = std::fabs(static_cast<double>(values[c]) - bias) + std::fabs(bias);
  }
  return true;
}

int64_t A8GroupOf(const EncodedMatrix& weight) {
  const AffineFormat* format = AsAffine(weight);
  return format == nullptr ? 0 : format->group_size();
}

}  // namespace

const KernelFamily kAffineKernels = {
    .name = "affine",
    .add_kernels = AddAffineKernels,
    .make_decoder = MakeAffinePanelDecoder,
    .term_magnitudes = AffineTermMagnitudes,
    .a8_group = A8GroupOf,
};

}  // namespace assay
