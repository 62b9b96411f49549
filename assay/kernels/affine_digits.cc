#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include "assay/base/parallel.h"
#include "assay/formats/affine.h"
#include "assay/kernels/codes_avx512-inl.h"
#include "assay/kernels/digits_avx512-inl.h"

namespace assay {
namespace {

template <int kBits, int kGroup, int kDigits>
DigitsEntry EntryFor(DType dtype) {
  using Codes = UnsignedCodes<kBits>;
  if (dtype == DType::kBF16) {
    // What MLX's checkpoints hold; the others do without, for the sake of compile time.
    constexpr bool kFour = kGroup == 64;
    return MakeDigitsEntry<Codes, kGroup, kDigits, BF16Scales, BF16Scales, kFour>();
  }
  if (dtype == DType::kF16) return MakeDigitsEntry<Codes, kGroup, kDigits, F16Scales, F16Scales>();
  return MakeDigitsEntry<Codes, kGroup, kDigits, F32Scales, F32Scales>();
}

template <int kBits, int kGroup>
DigitsEntry EntryFor(DType dtype, bool a8) {
  return a8 ? EntryFor<kBits, kGroup, 1>(dtype) : EntryFor<kBits, kGroup, 3>(dtype);
}

template <int kBits>
DigitsEntry EntryFor(int group, DType dtype, bool a8) {
  if (group == 32) return EntryFor<kBits, 32>(dtype, a8);
  if (group == 64) return EntryFor<kBits, 64>(dtype, a8);
  return EntryFor<kBits, 128>(dtype, a8);
}

DigitsEntry EntryFor(int bits, int group, DType dtype, bool a8) {
  if (bits == 2) return EntryFor<2>(group, dtype, a8);
  if (bits == 3) return EntryFor<3>(group, dtype, a8);
  if (bits == 4) return EntryFor<4>(group, dtype, a8);
  if (bits == 5) return EntryFor<5>(group, dtype, a8);
  if (bits == 6) return EntryFor<6>(group, dtype, a8);
  return EntryFor<8>(group, dtype, a8);
}

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix& weight, bool a8) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr || !HasAvx512Vnni()) return nullptr;
  const int group = format->group_size();
  const CodePlanes planes{weight.Get("codes").bytes().data(),
                          weight.Get("scales").bytes().data(),
                          weight.Get("biases").bytes().data(),
                          weight.rows,
                          weight.cols,
                          weight.cols * format->bits() / 8,
                          weight.cols / group,
                          1.0f};
  return std::make_unique<DigitsProduct>(weight, planes,
                                         EntryFor(format->bits(), group, weight.dtype, a8), group,
                                         a8, fmt::format("affine{} codes", format->bits()));
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix&, bool) { return nullptr; }

}  // namespace assay

#endif
