#include "assay/kernels/affine_kernels.h"
#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/parallel.h"
#include "assay/formats/affine.h"
#include "assay/kernels/round_activations.h"

namespace assay {
namespace {

/// Distance of the code stream's prefetch: some 100 lines must be in flight per core, and a kernel
/// of 25 instructions a line sees only 20 of them itself.
constexpr int64_t kPrefetchBytes = 6144;

/// Codes that share one int32 accumulator step, as V vectors of 64 code bytes.
template <int kBits>
struct Unit {
  static constexpr int kVectors = kBits == 4 ? 2 : kBits == 2 ? 4 : 1;
  static constexpr int kCodes = 64 * kVectors;
  static constexpr int kBytes = kCodes * kBits / 8;
  /// |integer| of x: the sum of a lane's products (4 · kVectors of them) stays below 2^31, and the
  /// top one of three digits inside int8.
  static constexpr double kScale = kBits == 8 ? 2096128.0 : kBits == 6 ? 4194000.0 : 8349286.0;

  /// Column of byte b of vector v inside the unit.
  static constexpr int Column(int v, int b) { return b * kVectors + v; }
};

struct Weights {
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* biases;
  int64_t rows;
  int64_t cols;
  int64_t row_bytes;
  int64_t groups;  ///< per row
};

/// x of one call. Per unit: kDigits × kVectors × 64 bytes of digits, most significant digit first,
/// then 16 f32: the scale of each int32 lane's group.
struct PreparedX {
  AlignedBuffer<std::byte> units;
  AlignedBuffer<float> sums;  ///< Σ x of each group, padded with zeros to 16
};

template <int kBits, int kDigits>
constexpr int64_t UnitStride() {
  return int64_t{64} * (Unit<kBits>::kVectors * kDigits + 1);
}

/// False when a group is not finite or its absmax is so small that its scale would lose bits.
template <int kBits, int kDigits>
bool PrepareX(const float* x, int64_t cols, int64_t group, PreparedX& out) {
  using U = Unit<kBits>;
  const int64_t units = CeilDiv<int64_t>(cols, U::kCodes);
  constexpr int64_t kStride = UnitStride<kBits, kDigits>();
  out.units.Resize(static_cast<size_t>(units * kStride));
  std::memset(out.units.data(), 0, out.units.size());
  const int64_t groups = cols / group;
  out.sums.Resize(static_cast<size_t>(CeilDiv<int64_t>(groups, 16) * 16));
  std::fill_n(out.sums.data(), out.sums.size(), 0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    const float* values = x + g * group;
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < group; ++i) {
      const float magnitude = std::fabs(values[i]);
      finite = finite && magnitude <= 3.0e38f;
      largest = largest < magnitude ? magnitude : largest;
    }
    if (!finite || (largest != 0 && largest < kMinA8AbsMax)) return false;
    if (largest == 0) continue;
    const float scale = kDigits == 1 ? largest / 127.0f
                                     : static_cast<float>(static_cast<double>(largest) / U::kScale);
    const double inverse = U::kScale / static_cast<double>(largest);
    std::array<int32_t, 128> integers;
    double sum = 0;
    for (int64_t i = 0; i < group; ++i) {
      const auto at = static_cast<size_t>(i);
      if constexpr (kDigits == 1) {
        integers[at] = static_cast<int32_t>(std::nearbyint(values[i] / scale));
        sum += static_cast<double>(static_cast<float>(integers[at]) * scale);
      } else {
        integers[at] =
            static_cast<int32_t>(std::nearbyint(static_cast<double>(values[i]) * inverse));
        sum += static_cast<double>(values[i]);
      }
    }
    out.sums[static_cast<size_t>(g)] = static_cast<float>(sum);
    for (int64_t i = 0; i < group; ++i) {
      const int64_t column = g * group + i;
      const int64_t in_unit = column % U::kCodes;
      std::byte* unit = out.units.data() + column / U::kCodes * kStride;
      const int64_t vector = in_unit % U::kVectors;
      const int64_t byte = in_unit / U::kVectors;
      int32_t rest = integers[static_cast<size_t>(i)];
      for (int d = kDigits - 1; d >= 0; --d) {
        const auto digit = static_cast<int8_t>(rest & 0xFF);
        rest = (rest - digit) >> 8;
        unit[(d * U::kVectors + vector) * 64 + byte] = static_cast<std::byte>(digit);
      }
    }
    // Lane l holds the codes 4·kVectors·l … of the unit.
    constexpr int64_t kLaneCodes = 4 * U::kVectors;
    for (int64_t column = g * group; column < (g + 1) * group; column += kLaneCodes) {
      std::byte* unit = out.units.data() + column / U::kCodes * kStride;
      const int64_t lane = column % U::kCodes / kLaneCodes;
      std::memcpy(unit + kStride - 64 + lane * 4, &scale, sizeof(scale));
    }
  }
  return true;
}

ASSAY_AVX512_BEGIN

template <int kBits>
struct Unpacked {
  __m512i codes[Unit<kBits>::kVectors];
};

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

template <int kBits>
inline Unpacked<kBits> Unpack(__m512i packed, __m512i spread, __m512i shifts) {
  Unpacked<kBits> out;
  const __m512i mask = _mm512_set1_epi8(static_cast<char>((1 << kBits) - 1));
  if constexpr (kBits == 8) {
    out.codes[0] = packed;
  } else if constexpr (kBits == 4) {
    out.codes[0] = _mm512_and_si512(packed, mask);
    out.codes[1] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
  } else if constexpr (kBits == 2) {
    out.codes[0] = _mm512_and_si512(packed, mask);
    out.codes[1] = _mm512_and_si512(_mm512_srli_epi16(packed, 2), mask);
    out.codes[2] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), mask);
    out.codes[3] = _mm512_and_si512(_mm512_srli_epi16(packed, 6), mask);
  } else {
    const __m512i bytes = _mm512_permutexvar_epi8(spread, packed);
    out.codes[0] = _mm512_and_si512(_mm512_multishift_epi64_epi8(shifts, bytes), mask);
  }
  return out;
}

/// Stored scales of T as f32: 16 of them, or kGroups of them spread over the lanes.
struct BF16Scales {
  static constexpr int64_t kBytes = 2;

  template <int kGroups>
  static __m512 Spread(const std::byte* p) {
    constexpr __mmask32 kHigh = 0xAAAAAAAAu;
    if constexpr (kGroups == 1) {
      int16_t value;
      std::memcpy(&value, p, sizeof(value));
      return _mm512_castsi512_ps(_mm512_maskz_set1_epi16(kHigh, value));
    } else {
      constexpr int kLanes = 16 / kGroups;
      alignas(64) std::array<uint16_t, 32> index{};
      for (size_t i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(i / 2 / kLanes);
      __m512i words;
      if constexpr (kGroups == 2) {
        int32_t value;
        std::memcpy(&value, p, sizeof(value));
        words = _mm512_set1_epi32(value);
      } else if constexpr (kGroups == 4) {
        int64_t value;
        std::memcpy(&value, p, sizeof(value));
        words = _mm512_set1_epi64(value);
      } else {
        words = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
      }
      return _mm512_castsi512_ps(
          _mm512_maskz_permutexvar_epi16(kHigh, _mm512_load_si512(index.data()), words));
    }
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    const __m256i words = _mm256_maskz_loadu_epi16(mask, p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
};

struct F16Scales {
  static constexpr int64_t kBytes = 2;

  template <int kGroups>
  static __m512 Spread(const std::byte* p) {
    alignas(64) std::array<int32_t, 16> index{};
    for (size_t i = 0; i < 16; ++i) index[i] = static_cast<int32_t>(i) / (16 / kGroups);
    const __m128i words = _mm_maskz_loadu_epi16((1u << kGroups) - 1, p);
    return _mm512_permutexvar_ps(_mm512_load_si512(index.data()),
                                 _mm512_castps256_ps512(_mm256_cvtph_ps(words)));
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
  }
};

struct F32Scales {
  static constexpr int64_t kBytes = 4;

  template <int kGroups>
  static __m512 Spread(const std::byte* p) {
    alignas(64) std::array<int32_t, 16> index{};
    for (size_t i = 0; i < 16; ++i) index[i] = static_cast<int32_t>(i) / (16 / kGroups);
    return _mm512_permutexvar_ps(_mm512_load_si512(index.data()),
                                 _mm512_maskz_loadu_ps((1u << kGroups) - 1, p));
  }

  static __m512 Load16(const std::byte* p, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, p);
  }
};

template <int kBits, int kGroup, int kDigits, typename Scales>
struct Kernel {
  using U = Unit<kBits>;
  static constexpr int kGroupsPerUnit = U::kCodes > kGroup ? U::kCodes / kGroup : 1;
  static constexpr int64_t kStride = UnitStride<kBits, kDigits>();

  /// (codes · x) of each lane in f32, times the group's scale of x.
  static __m512 Dot(const Unpacked<kBits>& w, const std::byte* x) {
    __m512i sum = _mm512_setzero_si512();
    for (int d = 0; d < kDigits; ++d) {
      if (d != 0) sum = _mm512_slli_epi32(sum, 8);
      for (int v = 0; v < U::kVectors; ++v) {
        sum =
            _mm512_dpbusd_epi32(sum, w.codes[v], _mm512_load_si512(x + (d * U::kVectors + v) * 64));
      }
    }
    const __m512 x_scale = _mm512_load_ps(reinterpret_cast<const float*>(x + kStride - 64));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(sum), x_scale);
  }

  template <size_t kRows>
  static void Block(const Weights& w, const PreparedX& x, int64_t row, float* y) {
    const __m512i spread = SpreadIndex<kBits>();
    const __m512i shifts = ShiftCounts<kBits>();
    constexpr __mmask64 kLoad = U::kBytes == 64 ? ~__mmask64{0} : (__mmask64{1} << U::kBytes) - 1;
    const std::byte* codes = w.codes + row * w.row_bytes;
    const std::byte* scales = w.scales + row * w.groups * Scales::kBytes;
    const std::byte* biases = w.biases + row * w.groups * Scales::kBytes;
    const int64_t scale_row = w.groups * Scales::kBytes;
    // The small planes: the lines of the row that the code stream's prefetch is in.
    const int64_t ahead = (kPrefetchBytes / w.row_bytes + 1) * scale_row;
    for (int64_t b = 0; b < scale_row * static_cast<int64_t>(kRows); b += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(scales + ahead + b), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(biases + ahead + b), _MM_HINT_T0);
    }
    __m512 sums[kRows];
    for (__m512& sum : sums) sum = _mm512_setzero_ps();
    const int64_t units = w.cols / U::kCodes;
    const std::byte* x_unit = x.units.data();
    for (int64_t u = 0; u < units; ++u, x_unit += kStride) {
      const int64_t group = u * U::kCodes / kGroup;
      for (size_t r = 0; r < kRows; ++r) {
        const auto row_index = static_cast<int64_t>(r);
        const std::byte* at = codes + row_index * w.row_bytes + u * U::kBytes;
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T0);
        const __m512i packed =
            U::kBytes == 64 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi8(kLoad, at);
        const __m512 scale = Scales::template Spread<kGroupsPerUnit>(
            scales + row_index * scale_row + group * Scales::kBytes);
        sums[r] =
            _mm512_fmadd_ps(Dot(Unpack<kBits>(packed, spread, shifts), x_unit), scale, sums[r]);
      }
    }
    if (const int64_t rest = w.cols - units * U::kCodes; rest > 0) {
      const int64_t rest_bytes = rest * kBits / 8;
      const __mmask64 load = (__mmask64{1} << rest_bytes) - 1;
      const int64_t group = units * U::kCodes / kGroup;
      for (size_t r = 0; r < kRows; ++r) {
        const auto row_index = static_cast<int64_t>(r);
        const std::byte* at = codes + row_index * w.row_bytes + units * U::kBytes;
        std::array<std::byte, 64> tail_scales{};
        std::memcpy(tail_scales.data(), scales + row_index * scale_row + group * Scales::kBytes,
                    static_cast<size_t>((w.groups - group) * Scales::kBytes));
        const __m512 scale = Scales::template Spread<kGroupsPerUnit>(tail_scales.data());
        const __m512i packed = _mm512_maskz_loadu_epi8(load, at);
        sums[r] =
            _mm512_fmadd_ps(Dot(Unpack<kBits>(packed, spread, shifts), x_unit), scale, sums[r]);
      }
    }
    for (int64_t g = 0; g < w.groups; g += 16) {
      const int64_t left = w.groups - g;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1 << left) - 1);
      const __m512 x_sums = _mm512_load_ps(x.sums.data() + g);
      for (size_t r = 0; r < kRows; ++r) {
        const auto row_index = static_cast<int64_t>(r);
        const std::byte* at = biases + row_index * scale_row + g * Scales::kBytes;
        sums[r] = _mm512_fmadd_ps(Scales::Load16(at, mask), x_sums, sums[r]);
      }
    }
    for (size_t r = 0; r < kRows; ++r)
      y[row + static_cast<int64_t>(r)] = _mm512_reduce_add_ps(sums[r]);
  }

  static void Rows(const Weights& w, const PreparedX& x, int64_t first, int64_t last, float* y) {
    // x beyond the first-level cache: two rows share each load of it.
    constexpr int64_t kCacheBytes = 40 << 10;
    if (static_cast<int64_t>(x.units.size()) > kCacheBytes) {
      for (; first + 2 <= last; first += 2) Block<2>(w, x, first, y);
    }
    for (; first < last; ++first) Block<1>(w, x, first, y);
  }
};

ASSAY_AVX512_END

struct Entry {
  bool (*prepare)(const float* x, int64_t cols, int64_t group, PreparedX& out);
  void (*rows)(const Weights& w, const PreparedX& x, int64_t first, int64_t last, float* y);
  double scale;  ///< Unit::kScale
  int unit_codes;
};

template <int kBits, int kGroup, int kDigits, typename Scales>
constexpr Entry MakeEntry() {
  return {PrepareX<kBits, kDigits>, Kernel<kBits, kGroup, kDigits, Scales>::Rows,
          Unit<kBits>::kScale, Unit<kBits>::kCodes};
}

template <int kBits, int kGroup, int kDigits>
Entry EntryFor(DType dtype) {
  if (dtype == DType::kBF16) return MakeEntry<kBits, kGroup, kDigits, BF16Scales>();
  if (dtype == DType::kF16) return MakeEntry<kBits, kGroup, kDigits, F16Scales>();
  return MakeEntry<kBits, kGroup, kDigits, F32Scales>();
}

template <int kBits, int kGroup>
Entry EntryFor(DType dtype, bool a8) {
  return a8 ? EntryFor<kBits, kGroup, 1>(dtype) : EntryFor<kBits, kGroup, 3>(dtype);
}

template <int kBits>
Entry EntryFor(int group, DType dtype, bool a8) {
  if (group == 32) return EntryFor<kBits, 32>(dtype, a8);
  if (group == 64) return EntryFor<kBits, 64>(dtype, a8);
  return EntryFor<kBits, 128>(dtype, a8);
}

Entry EntryFor(int bits, int group, DType dtype, bool a8) {
  if (bits == 2) return EntryFor<2>(group, dtype, a8);
  if (bits == 3) return EntryFor<3>(group, dtype, a8);
  if (bits == 4) return EntryFor<4>(group, dtype, a8);
  if (bits == 5) return EntryFor<5>(group, dtype, a8);
  if (bits == 6) return EntryFor<6>(group, dtype, a8);
  return EntryFor<8>(group, dtype, a8);
}

class AffineDigits final : public ProductKernel {
 public:
  AffineDigits(const EncodedMatrix& weight, const AffineFormat& format, bool a8)
      : weight_(weight),
        bits_(format.bits()),
        group_(format.group_size()),
        a8_(a8),
        entry_(EntryFor(bits_, group_, weight.dtype, a8)),
        planes_{weight_.Get("codes").bytes().data(),
                weight_.Get("scales").bytes().data(),
                weight_.Get("biases").bytes().data(),
                weight.rows,
                weight.cols,
                weight.cols * bits_ / 8,
                weight.cols / group_} {}

  std::string Name() const override {
    return fmt::format("affine{} codes times {}, AVX-512 VNNI", bits_,
                       a8_ ? "int8 x" : "x in 3 int8 digits");
  }

  Accuracy Bound() const override {
    const double chain =
        static_cast<double>(weight_.cols) / entry_.unit_codes + 24;  // units, groups / 16, lanes
    // The digits leave half a step of absmax / scale.
    const double digits = a8_ ? 0 : 0.5 / entry_.scale;
    return {false, chain * 0x1p-24 + digits, group_,
            fmt::format("(K/{} + 24) · 2^-24{}", entry_.unit_codes,
                        a8_ ? "" : fmt::format(" + {:.2g}", digits))};
  }

  bool Run(const Activations& x, float* y) override {
    if (x.num_rows() != 1) return false;
    if (!entry_.prepare(x.F32(), weight_.cols, group_, x_)) return false;
    ParallelFor(0, weight_.rows, RowGrain(weight_.rows, 2),
                [&](int64_t first, int64_t last) { entry_.rows(planes_, x_, first, last, y); });
    return true;
  }

 private:
  EncodedMatrix weight_;
  int bits_;
  int group_;
  bool a8_;
  Entry entry_;
  Weights planes_;
  PreparedX x_;
};

}  // namespace

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix& weight, bool a8) {
  const auto* format = dynamic_cast<const AffineFormat*>(weight.format.get());
  if (format == nullptr || !HasAvx512Vnni()) return nullptr;
  return std::make_unique<AffineDigits>(weight, *format, a8);
}

}  // namespace assay

#else

namespace assay {

std::unique_ptr<ProductKernel> MakeAffineDigits(const EncodedMatrix&, bool) { return nullptr; }

}  // namespace assay

#endif
