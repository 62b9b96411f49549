#include "assay/kernels/reproducible_matmul.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "assay/base/checked.h"
#include "assay/base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/kernels/reproducible_matmul.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kBlock = 256;  // columns summed before a total in double; 32 KiB of x at AVX-512
constexpr size_t kRows = 6;     // rows of W held in registers: 6 × 2 sums hide the latency of 8
constexpr size_t kTokens = static_cast<size_t>(PackedActivations::kTokens);

// True when all values have at most 16 significant bits and a magnitude of 0 or in [2⁻⁹⁰, 2⁴⁰].
bool AreNarrow(const float* values, size_t count) {
  const hn::ScalableTag<uint32_t> du;
  const hn::RebindToFloat<decltype(du)> df;
  const size_t lanes = hn::Lanes(df);
  const auto low = hn::Set(df, 0x1p-90f);
  const auto high = hn::Set(df, 0x1p40f);
  auto extra_bits = hn::Zero(du);
  auto largest = hn::Zero(df);
  auto smallest = high;
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::Abs(hn::LoadU(df, values + i));
    extra_bits = hn::Or(extra_bits, hn::BitCast(du, v));
    largest = hn::Max(largest, v);
    smallest = hn::Min(smallest, hn::IfThenElse(hn::Eq(v, hn::Zero(df)), high, v));
  }
  // NaN and infinity have exponent bits that Max may lose: the wide sums take those rows as well.
  bool narrow = hn::AllTrue(df, hn::And(hn::Le(largest, high), hn::Ge(smallest, low))) &&
                hn::AllTrue(du, hn::Eq(hn::And(extra_bits, hn::Set(du, 0xFFu)), hn::Zero(du)));
  for (; i < count; ++i) {
    const float v = std::abs(values[i]);
    narrow = narrow && (v == 0.0f || (v >= 0x1p-90f && v <= 0x1p40f)) &&
             (std::bit_cast<uint32_t>(v) & 0xFFu) == 0;
  }
  return narrow;
}

// sums[r][t] += Σ_k w[r][k] · x[k][t] for kRows rows and two vectors of tokens.
// x: `count` columns, x_stride apart. sums: rows kTokens apart.
template <class D, typename T = hn::TFromD<D>>
HWY_INLINE void AddBlock(D d, const std::array<const T*, kRows>& w, const T* HWY_RESTRICT x,
                         size_t x_stride, size_t count, const std::array<double*, kRows>& sums) {
  const size_t lanes = hn::Lanes(d);
  auto a0 = hn::Zero(d), a1 = hn::Zero(d), b0 = hn::Zero(d), b1 = hn::Zero(d);
  auto c0 = hn::Zero(d), c1 = hn::Zero(d), d0 = hn::Zero(d), d1 = hn::Zero(d);
  auto e0 = hn::Zero(d), e1 = hn::Zero(d), f0 = hn::Zero(d), f1 = hn::Zero(d);
  const T* HWY_RESTRICT wa = w[0];
  const T* HWY_RESTRICT wb = w[1];
  const T* HWY_RESTRICT wc = w[2];
  const T* HWY_RESTRICT wd = w[3];
  const T* HWY_RESTRICT we = w[4];
  const T* HWY_RESTRICT wf = w[5];
  for (size_t k = 0; k < count; ++k, x += x_stride) {
    const auto x0 = hn::LoadU(d, x);
    const auto x1 = hn::LoadU(d, x + lanes);
    auto v = hn::Set(d, wa[k]);
    a0 = hn::MulAdd(v, x0, a0);
    a1 = hn::MulAdd(v, x1, a1);
    v = hn::Set(d, wb[k]);
    b0 = hn::MulAdd(v, x0, b0);
    b1 = hn::MulAdd(v, x1, b1);
    v = hn::Set(d, wc[k]);
    c0 = hn::MulAdd(v, x0, c0);
    c1 = hn::MulAdd(v, x1, c1);
    v = hn::Set(d, wd[k]);
    d0 = hn::MulAdd(v, x0, d0);
    d1 = hn::MulAdd(v, x1, d1);
    v = hn::Set(d, we[k]);
    e0 = hn::MulAdd(v, x0, e0);
    e1 = hn::MulAdd(v, x1, e1);
    v = hn::Set(d, wf[k]);
    f0 = hn::MulAdd(v, x0, f0);
    f1 = hn::MulAdd(v, x1, f1);
  }
  HWY_ALIGN std::array<T, 2 * kTokens> out;
  const auto add = [&](auto low, auto high, double* HWY_RESTRICT sum) HWY_ATTR {
    hn::StoreU(low, d, out.data());
    hn::StoreU(high, d, out.data() + lanes);
    for (size_t t = 0; t < 2 * lanes; ++t) sum[t] += static_cast<double>(out[t]);
  };
  add(a0, a1, sums[0]);
  add(b0, b1, sums[1]);
  add(c0, c1, sums[2]);
  add(d0, d1, sums[3]);
  add(e0, e1, sums[4]);
  add(f0, f1, sums[5]);
}

// All rows against one panel, in block sums of D's type. Missing rows of the last six repeat the
// last row into `spare`.
template <class D, typename T = hn::TFromD<D>>
void MultiplyPanel(D d, const float* HWY_RESTRICT weights, size_t num_rows, size_t k,
                   const float* HWY_RESTRICT panel, double* HWY_RESTRICT sums) {
  const size_t step = 2 * hn::Lanes(d);
  constexpr bool kWide = sizeof(T) == sizeof(double);
  std::vector<double> wide_w(kWide ? num_rows * kBlock : 0);
  std::vector<double> wide_x(kWide ? kBlock * step : 0);
  std::array<double, kTokens> spare;
  for (size_t first = 0; first < k; first += kBlock) {
    const size_t count = std::min(kBlock, k - first);
    if constexpr (kWide) {
      for (size_t row = 0; row < num_rows; ++row) {
        std::copy_n(weights + row * k + first, count, wide_w.data() + row * kBlock);
      }
    }
    for (size_t token = 0; token < kTokens; token += step) {
      const float* x_block = panel + first * kTokens + token;
      if constexpr (kWide) {
        for (size_t i = 0; i < count; ++i) {
          std::copy_n(x_block + i * kTokens, step, wide_x.data() + i * step);
        }
      }
      for (size_t row = 0; row < num_rows; row += kRows) {
        std::array<const T*, kRows> w;
        std::array<double*, kRows> out;
        for (size_t r = 0; r < kRows; ++r) {
          const bool real = row + r < num_rows;
          const size_t index = real ? row + r : num_rows - 1;
          if constexpr (kWide) {
            w[r] = wide_w.data() + index * kBlock;
          } else {
            w[r] = weights + index * k + first;
          }
          out[r] = real ? sums + index * kTokens + token : spare.data();
        }
        if constexpr (kWide) {
          AddBlock(d, w, wide_x.data(), step, count, out);
        } else {
          AddBlock(d, w, x_block, kTokens, count, out);
        }
      }
    }
  }
}

void ReproducibleMatmulT(const float* weights, size_t num_rows, const PackedActivations& x,
                         float* y) {
  const auto k = static_cast<size_t>(x.k());
  const auto m = static_cast<size_t>(x.m());
  const bool narrow = x.is_narrow() && AreNarrow(weights, num_rows * k);
  // 32 tokens at most in two vectors, so that kTokens is a multiple of them.
  const hn::CappedTag<float, kTokens / 2> df;
  const hn::CappedTag<double, kTokens / 2> dd;
  std::vector<double> sums(num_rows * kTokens);
  for (int64_t panel = 0; panel < x.num_panels(); ++panel) {
    std::fill(sums.begin(), sums.end(), 0.0);
    if (narrow) {
      MultiplyPanel(df, weights, num_rows, k, x.Panel(panel).data(), sums.data());
    } else {
      MultiplyPanel(dd, weights, num_rows, k, x.Panel(panel).data(), sums.data());
    }
    const size_t first = static_cast<size_t>(panel) * kTokens;
    const size_t tokens = std::min(kTokens, m - first);
    for (size_t row = 0; row < num_rows; ++row) {
      for (size_t t = 0; t < tokens; ++t) {
        y[row * m + first + t] = static_cast<float>(sums[row * kTokens + t]);
      }
    }
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {

HWY_EXPORT(ReproducibleMatmulT);

PackedActivations::PackedActivations(std::span<const float> x, int64_t m, int64_t k)
    : m_(m), k_(k) {
  const auto elements = CheckedMul(m, k);
  if (m < 0 || k < 0 || !elements || static_cast<size_t>(*elements) != x.size()) {
    ThrowInternal("activations: {} values are no {} × {} matrix", x.size(), m, k);
  }
  const auto width = static_cast<size_t>(kTokens);
  values_.assign(static_cast<size_t>(num_panels()) * static_cast<size_t>(k) * width, 0.0f);
  for (size_t token = 0; token < static_cast<size_t>(m); ++token) {
    float* panel = values_.data() + token / width * width * static_cast<size_t>(k);
    for (size_t col = 0; col < static_cast<size_t>(k); ++col) {
      const float value = x[token * static_cast<size_t>(k) + col];
      panel[col * width + token % width] = value;
      const float magnitude = std::abs(value);
      is_narrow_ = is_narrow_ && (std::bit_cast<uint32_t>(value) & 0xFFFFu) == 0 &&
                   (value == 0.0f || (magnitude >= 0x1p-40f && magnitude <= 0x1p40f));
    }
  }
}

std::span<const float> PackedActivations::Panel(int64_t panel) const {
  const auto size = static_cast<size_t>(k_ * kTokens);
  return std::span<const float>(values_).subspan(static_cast<size_t>(panel) * size, size);
}

void ReproducibleMatmul(std::span<const float> weights, int64_t num_rows,
                        const PackedActivations& x, std::span<float> y) {
  if (num_rows < 0 || weights.size() != static_cast<size_t>(num_rows * x.k()) ||
      y.size() != static_cast<size_t>(num_rows * x.m())) {
    ThrowInternal("product: {} weights and {} results for {} rows, {} columns, {} tokens",
                  weights.size(), y.size(), num_rows, x.k(), x.m());
  }
  if (num_rows == 0) return;
  HWY_DYNAMIC_DISPATCH(ReproducibleMatmulT)
  (weights.data(), static_cast<size_t>(num_rows), x, y.data());
}

}  // namespace assay
#endif
