#pragma once

// Products of integer codes with x written as signed base-256 digits, AVX-512 VNNI. Included by the
// files that instantiate it.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/kernels/digits_of_x_avx512-inl.h"
#include "assay/kernels/kernel_family.h"
#include "assay/kernels/round_activations.h"
#include "assay/kernels/scales_avx512-inl.h"
#include "assay/kernels/simd_avx512.h"

namespace assay {
namespace {

/// Planes of one weight, row-major.
struct CodePlanes {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;  ///< null when the format has none
  int64_t rows;
  int64_t cols;
  int64_t row_bytes;  ///< of codes
  int64_t groups;     ///< per row
  float factor;       ///< what the sum over a row is multiplied by
};

ASSAY_AVX512_BEGIN

/// Each qword takes the kBits bytes that its 8 codes lie in.
template <int kBits>
inline __m512i SpreadIndex() {
  alignas(64) std::array<uint8_t, 64> index{};
  for (size_t i = 0; i < 64; ++i) {
    const size_t byte = i % 8;
    index[i] = static_cast<uint8_t>(i / 8 * kBits + (byte < kBits ? byte : 0));
  }
  return _mm512_load_si512(index.data());
}

template <int kBits>
inline __m512i ShiftCounts() {
  uint64_t counts = 0;
  for (uint64_t i = 0; i < 8; ++i) counts |= (i * kBits) << (8 * i);
  return _mm512_set1_epi64(static_cast<int64_t>(counts));
}

/// In place of Biases.
struct NoBiases {
  static constexpr int64_t At(int64_t /*group*/) { return 0; }
};

/// Rows of codes times x: y[n] = factor · Σ_groups scale · (codes · x) + bias · Σx.
template <typename Codes, int kGroup, int kDigits, typename Scales, typename Biases>
struct DigitsKernel {
  static constexpr bool kBiases = !std::is_same_v<Biases, NoBiases>;
  static constexpr size_t kVectors = Codes::kVectors;
  static constexpr int kGroupsPerUnit = Codes::kCodes > kGroup ? Codes::kCodes / kGroup : 1;
  static constexpr int64_t kStride = UnitStride<Codes, kDigits>();

  /// (codes · x) of each lane in f32, times its scale of x.
  ASSAY_ALWAYS_INLINE static __m512 Dot(const __m512i (&codes)[kVectors], const std::byte* x) {
    __m512i sum = _mm512_setzero_si512();
    for (size_t d = 0; d < kDigits; ++d) {
      if (d != 0) sum = _mm512_slli_epi32(sum, 8);
      for (size_t v = 0; v < kVectors; ++v) {
        sum = _mm512_dpbusd_epi32(sum, codes[v], _mm512_load_si512(x + (d * kVectors + v) * 64));
      }
    }
    const std::byte* scales = x + kVectors * kDigits * 64;
    if constexpr (Codes::kOffset != 0) {
      sum = _mm512_sub_epi32(sum, _mm512_load_si512(scales + 64));
    }
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum),
                         _mm512_load_ps(reinterpret_cast<const float*>(scales)));
  }

  /// Adds units [first, last) of a row to the sums of kX rows of x.
  template <size_t kX>
  ASSAY_ALWAYS_INLINE static void Units(const CodePlanes& w, const Codes& unpack,
                                        const DigitsOfX* x, int64_t row, int64_t first,
                                        int64_t last, int64_t ahead, __m512 (&sums)[kX]) {
    const std::byte* codes = w.codes + row * w.row_bytes;
    const std::byte* scales = w.scales + row * Scales::At(w.groups);
    const std::byte* x_units[kX];
    __m512 running[kX];
    for (size_t i = 0; i < kX; ++i) {
      x_units[i] = x[i].units.data();
      running[i] = sums[i];
    }
    for (int64_t u = first; u < last; ++u) {
      const std::byte* at = codes + u * Codes::kBytes;
      _mm_prefetch(reinterpret_cast<const char*>(at + ahead), _MM_HINT_T0);
      const __m512i packed =
          Codes::kBytes == 64
              ? _mm512_loadu_si512(at)
              : _mm512_maskz_loadu_epi8((__mmask64{1} << (Codes::kBytes % 64)) - 1, at);
      Add(unpack, packed, x_units, u * kStride, scales + Scales::At(u * Codes::kCodes / kGroup),
          running);
    }
    for (size_t i = 0; i < kX; ++i) sums[i] = running[i];
  }

  template <size_t kX>
  ASSAY_ALWAYS_INLINE static void Add(const Codes& unpack, __m512i packed,
                                      const std::byte* const (&x_units)[kX], int64_t at,
                                      const std::byte* scale_at, __m512 (&sums)[kX]) {
    __m512i unpacked[kVectors];
    unpack(packed, unpacked);
    const __m512 scale = Scales::template Spread<kGroupsPerUnit>(scale_at);
    for (size_t i = 0; i < kX; ++i) {
      sums[i] = _mm512_fmadd_ps(Dot(unpacked, x_units[i] + at), scale, sums[i]);
    }
  }

  /// y of a row from the sum of its whole units: the last partial one, the biases, the lanes.
  static float Finish(const CodePlanes& w, const Codes& unpack, const DigitsOfX& x, int64_t row,
                      __m512 sum) {
    const std::byte* scales = w.scales + row * Scales::At(w.groups);
    const int64_t units = w.cols / Codes::kCodes;
    if (const int64_t rest = w.cols - units * Codes::kCodes; rest > 0) {
      const __mmask64 load = (__mmask64{1} << (rest * Codes::kBytes / Codes::kCodes)) - 1;
      const int64_t group = units * Codes::kCodes / kGroup;
      std::array<std::byte, 64> tail_scales{};
      std::memcpy(tail_scales.data(), scales + Scales::At(group),
                  static_cast<size_t>(Scales::At(w.groups) - Scales::At(group)));
      const std::byte* at = w.codes + row * w.row_bytes + units * Codes::kBytes;
      __m512 sums[1] = {sum};
      Add<1>(unpack, _mm512_maskz_loadu_epi8(load, at), {x.units.data()}, units * kStride,
             tail_scales.data(), sums);
      sum = sums[0];
    }
    if constexpr (kBiases) {
      const std::byte* biases = w.biases + row * Biases::At(w.groups);
      for (int64_t g = 0; g < w.groups; g += 16) {
        const int64_t left = w.groups - g;
        const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
        sum = _mm512_fmadd_ps(Biases::Load16(biases + Biases::At(g), mask),
                              _mm512_load_ps(x.sums.data() + g), sum);
      }
    }
    return _mm512_reduce_add_ps(sum) * w.factor;
  }

  /// The small planes: the lines of the rows that the code stream's prefetch is in.
  static void PrefetchScales(const CodePlanes& w, int64_t row, int64_t rows) {
    const int64_t first = row + kPrefetchBytes / w.row_bytes + 1;
    PrefetchRows(w.scales, Scales::At(w.groups), first, rows);
    if constexpr (kBiases) PrefetchRows(w.biases, Biases::At(w.groups), first, rows);
  }

  static void PrefetchRows(const std::byte* plane, int64_t row_bytes, int64_t first, int64_t rows) {
    for (int64_t b = first * row_bytes; b < (first + rows) * row_bytes; b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(plane + b), _MM_HINT_T0);
    }
  }

  /// Rows [first, last) of y[kX][w.rows] for kX rows of x.
  template <size_t kX>
  static void Rows(const CodePlanes& w, const DigitsOfX* x, int64_t first, int64_t last, float* y) {
    const Codes unpack;
    const int64_t units = w.cols / Codes::kCodes;
    // x beyond the first-level cache is met in segments that stay there, by a few rows at a time.
    constexpr int64_t kCacheBytes = 40 << 10;
    constexpr int64_t kSegmentBytes = 28 << 10;
    constexpr int64_t kBlockRows = 16;
    const auto x_bytes = static_cast<int64_t>(kX * x->units.size());
    const auto finish = [&](int64_t row, const __m512(&sums)[kX]) {
      for (size_t i = 0; i < kX; ++i) {
        y[static_cast<int64_t>(i) * w.rows + row] = Finish(w, unpack, x[i], row, sums[i]);
      }
    };
    if (x_bytes <= kCacheBytes) {
      for (; first < last; ++first) {
        PrefetchScales(w, first, 1);
        __m512 sums[kX] = {};
        Units(w, unpack, x, first, 0, units, kPrefetchBytes, sums);
        finish(first, sums);
      }
      return;
    }
    const int64_t segment = CeilDiv(units, CeilDiv(x_bytes, kSegmentBytes));
    // The same segment of a later row.
    const int64_t ahead = CeilDiv<int64_t>(4096, w.row_bytes) * w.row_bytes;
    for (; first < last; first += kBlockRows) {
      const int64_t rows = std::min(kBlockRows, last - first);
      PrefetchScales(w, first, rows);
      __m512 sums[kBlockRows][kX] = {};
      for (int64_t u = 0; u < units; u += segment) {
        const int64_t end = std::min(u + segment, units);
        for (int64_t r = 0; r < rows; ++r) {
          Units(w, unpack, x, first + r, u, end, ahead, sums[r]);
        }
      }
      for (int64_t r = 0; r < rows; ++r) finish(first + r, sums[r]);
    }
  }
};

ASSAY_AVX512_END

/// One instantiation: how x is laid out for it, and its rows.
struct DigitsEntry {
  bool (*prepare)(const float* x, int64_t cols, int64_t group, DigitsOfX& out) = nullptr;
  /// One row of x, and four at a time; null where those would only be more code.
  void (*rows)(const CodePlanes& w, const DigitsOfX* x, int64_t first, int64_t last,
               float* y) = nullptr;
  void (*rows_of_four)(const CodePlanes& w, const DigitsOfX* x, int64_t first, int64_t last,
                       float* y) = nullptr;
  double x_scale = 0;  ///< Codes::kXScale
  int unit_codes = 0;  ///< Codes::kCodes
};

/// kFour: with rows_of_four.
template <typename Codes, int kGroup, int kDigits, typename Scales, typename Biases,
          bool kFour = false>
constexpr DigitsEntry MakeDigitsEntry() {
  using Kernel = DigitsKernel<Codes, kGroup, kDigits, Scales, Biases>;
  DigitsEntry entry{PrepareDigits<Codes, kDigits>, Kernel::template Rows<1>, nullptr,
                    Codes::kXScale, Codes::kCodes};
  if constexpr (kFour) entry.rows_of_four = Kernel::template Rows<4>;
  return entry;
}

class DigitsProduct final : public ProductKernel {
 public:
  /// `x_group`: columns that share a scale of x. `what`: for the name, "affine4 codes".
  DigitsProduct(const EncodedMatrix& weight, const CodePlanes& planes, const DigitsEntry& entry,
                int64_t x_group, bool a8, std::string what)
      : weight_(weight),
        planes_(planes),
        entry_(entry),
        x_group_(x_group),
        a8_(a8),
        what_(std::move(what)) {}

  std::string Name() const override {
    return fmt::format("{} times {}, AVX-512 VNNI", what_, a8_ ? "int8 x" : "x in 3 int8 digits");
  }

  Accuracy Bound() const override {
    // Units of a row, groups / 16, lanes, scales; the weight's own two roundings.
    const double chain = static_cast<double>(weight_.cols) / entry_.unit_codes + 24;
    // The digits leave half a step of absmax / scale.
    const double digits = a8_ ? 0 : 0.5 / entry_.x_scale;
    return {false, chain * 0x1p-24 + digits, x_group_,
            fmt::format("(K/{} + 24) · 2^-24{}", entry_.unit_codes,
                        a8_ ? "" : fmt::format(" + {:.2g}", digits))};
  }

  bool Run(const Activations& x, float* y) override {
    constexpr int64_t kMaxXRows = 16;
    const int64_t num_x = x.num_rows();
    if (num_x > kMaxXRows) return false;
    x_.resize(static_cast<size_t>(num_x));
    for (int64_t m = 0; m < num_x; ++m) {
      if (!entry_.prepare(x.F32() + m * weight_.cols, weight_.cols, x_group_,
                          x_[static_cast<size_t>(m)])) {
        return false;
      }
    }
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, 2), [&](int64_t first, int64_t last) {
      // Several rows of x: a few rows of W stay in the cache while all of them pass.
      const int64_t step = num_x == 1 ? last - first : 8;
      for (int64_t n = first; n < last; n += step) {
        const int64_t end = std::min(n + step, last);
        int64_t m = 0;
        for (; entry_.rows_of_four != nullptr && m + 4 <= num_x; m += 4) {
          entry_.rows_of_four(planes_, x_.data() + m, n, end, y + m * weight_.rows);
        }
        for (; m < num_x; ++m) entry_.rows(planes_, x_.data() + m, n, end, y + m * weight_.rows);
      }
    });
    return true;
  }

 private:
  EncodedMatrix weight_;
  CodePlanes planes_;
  DigitsEntry entry_;
  int64_t x_group_;
  bool a8_;
  std::string what_;
  std::vector<DigitsOfX> x_;
};

}  // namespace
}  // namespace assay
