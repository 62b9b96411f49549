#include "assay/kernels/kernel_family.h"

#include <algorithm>
#include <array>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/block_kernels.h"
#include "assay/kernels/fp8_gemv.h"
#include "assay/kernels/ggml_kernels.h"
#include "assay/kernels/packed12_gemv.h"
#include "assay/kernels/plain_gemv.h"
#include "assay/kernels/turboquant_gemv.h"

namespace assay {
namespace {

// One line a family that has kernels of its own.
constexpr std::array kFamilies = {
    &kPlainKernels,    &kAffineKernels,     &kBlockKernels, &kFp8Kernels,
    &kPacked12Kernels, &kTurboQuantKernels, &kGgmlKernels,
};

}  // namespace

std::span<const KernelFamily* const> KernelFamilies() { return kFamilies; }

int64_t A8Group(const EncodedMatrix& weight) {
  for (const KernelFamily* family : KernelFamilies()) {
    if (family->a8_group == nullptr) continue;
    if (const int64_t group = family->a8_group(weight); group > 0) return group;
  }
  constexpr int64_t kDefaultGroup = 32;
  return kDefaultGroup;
}

int64_t RowGrain(int64_t rows, int64_t row_block) {
  constexpr int64_t kChunksPerThread = 4;
  const int64_t threads = NumThreads();
  const int64_t chunks = threads == 1 ? 1 : threads * kChunksPerThread;
  return std::max<int64_t>(1, CeilDiv(CeilDiv(rows, chunks), row_block)) * row_block;
}

}  // namespace assay
