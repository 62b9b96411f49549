#include "assay/measure/error_chunk.h"

#include <algorithm>
#include <array>

#include "assay/measure/error_stats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/measure/error_chunk.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Sums of one lane each; lanes outside the vector width come from another pass over the chunk.
struct LaneSums {
  static constexpr size_t kLanes = 8;
  alignas(64) std::array<double, kLanes> d2;
  alignas(64) std::array<double, kLanes> a2;
  alignas(64) std::array<double, kLanes> b2;
  alignas(64) std::array<double, kLanes> ab;
  alignas(64) std::array<double, kLanes> abs;
  alignas(64) std::array<double, kLanes> rel;
  alignas(64) std::array<double, kLanes> max_abs;
  alignas(64) std::array<double, kLanes> max_rel;
};

double SumLanes(const std::array<double, LaneSums::kLanes>& x) {
  return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
}

double MaxLanes(const std::array<double, LaneSums::kLanes>& x) {
  return *std::max_element(x.begin(), x.end());
}

// Writes clean copies (pairs with a non-finite side become 0, 0; padded with zeros to whole lanes)
// and counts. Zero pairs add +0 to every sum, so they change no bit.
size_t Clean(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, size_t size,
             float* HWY_RESTRICT clean_a, float* HWY_RESTRICT clean_b, ErrorChunk& chunk) {
  const hn::ScalableTag<float> df;
  const size_t lanes = hn::Lanes(df);
  size_t num_finite = 0;
  size_t num_equal = 0;
  size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto va = hn::LoadU(df, a + i);
    const auto vb = hn::LoadU(df, b + i);
    const auto finite = hn::And(hn::IsFinite(va), hn::IsFinite(vb));
    const auto both_nan = hn::And(hn::IsNaN(va), hn::IsNaN(vb));
    num_finite += hn::CountTrue(df, finite);
    num_equal += hn::CountTrue(df, hn::Or(hn::Eq(va, vb), both_nan));
    hn::StoreU(hn::IfThenElseZero(finite, va), df, clean_a + i);
    hn::StoreU(hn::IfThenElseZero(finite, vb), df, clean_b + i);
  }
  for (; i < size; ++i) {
    const bool finite = a[i] - a[i] == 0 && b[i] - b[i] == 0;
    num_finite += finite ? 1 : 0;
    num_equal += a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]) ? 1 : 0;
    clean_a[i] = finite ? a[i] : 0.0f;
    clean_b[i] = finite ? b[i] : 0.0f;
  }
  for (; i % LaneSums::kLanes != 0; ++i) clean_a[i] = clean_b[i] = 0.0f;
  chunk.num_finite = static_cast<int64_t>(num_finite);
  chunk.num_equal = static_cast<int64_t>(num_equal);
  return i;
}

ErrorChunk MeasureErrorChunkT(const float* a, const float* b, size_t size) {
  ErrorChunk chunk;
  alignas(64) std::array<float, ErrorSums::kChunk> clean_a;
  alignas(64) std::array<float, ErrorSums::kChunk> clean_b;
  const size_t padded = Clean(a, b, size, clean_a.data(), clean_b.data(), chunk);

  const hn::CappedTag<double, LaneSums::kLanes> dd;
  const hn::Rebind<float, decltype(dd)> df;
  const size_t lanes = hn::Lanes(dd);
  const auto floor = hn::Set(dd, kRelativeFloor);
  LaneSums sums;
  for (size_t lane = 0; lane < LaneSums::kLanes; lane += lanes) {
    auto d2 = hn::Zero(dd);
    auto a2 = hn::Zero(dd);
    auto b2 = hn::Zero(dd);
    auto ab = hn::Zero(dd);
    auto abs = hn::Zero(dd);
    auto rel = hn::Zero(dd);
    auto max_abs = hn::Zero(dd);
    auto max_rel = hn::Zero(dd);
    for (size_t i = lane; i < padded; i += LaneSums::kLanes) {
      const auto va = hn::PromoteTo(dd, hn::Load(df, clean_a.data() + i));
      const auto vb = hn::PromoteTo(dd, hn::Load(df, clean_b.data() + i));
      const auto d = hn::Abs(hn::Sub(va, vb));
      const auto r = hn::Div(d, hn::Max(hn::Abs(vb), floor));
      d2 = hn::Add(d2, hn::Mul(d, d));
      a2 = hn::MulAdd(va, va, a2);
      b2 = hn::MulAdd(vb, vb, b2);
      ab = hn::MulAdd(va, vb, ab);
      abs = hn::Add(abs, d);
      rel = hn::Add(rel, r);
      max_abs = hn::Max(max_abs, d);
      max_rel = hn::Max(max_rel, r);
    }
    hn::Store(d2, dd, sums.d2.data() + lane);
    hn::Store(a2, dd, sums.a2.data() + lane);
    hn::Store(b2, dd, sums.b2.data() + lane);
    hn::Store(ab, dd, sums.ab.data() + lane);
    hn::Store(abs, dd, sums.abs.data() + lane);
    hn::Store(rel, dd, sums.rel.data() + lane);
    hn::Store(max_abs, dd, sums.max_abs.data() + lane);
    hn::Store(max_rel, dd, sums.max_rel.data() + lane);
  }
  chunk.d2 = SumLanes(sums.d2);
  chunk.a2 = SumLanes(sums.a2);
  chunk.b2 = SumLanes(sums.b2);
  chunk.ab = SumLanes(sums.ab);
  chunk.abs = SumLanes(sums.abs);
  chunk.rel = SumLanes(sums.rel);
  chunk.max_abs = MaxLanes(sums.max_abs);
  chunk.max_rel = MaxLanes(sums.max_rel);
  return chunk;
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(MeasureErrorChunkT);

ErrorChunk MeasureErrorChunk(std::span<const float> a, std::span<const float> b) {
  return HWY_DYNAMIC_DISPATCH(MeasureErrorChunkT)(a.data(), b.data(), a.size());
}

}  // namespace assay
#endif
