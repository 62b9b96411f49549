#include "assay/kernels/multiply_peak.h"

#include <array>
#include <atomic>
#include <cstring>

#include "assay/base/parallel.h"
#include "assay/kernels/amx_permission.h"
#include "assay/kernels/amx_tiles-inl.h"
#include "assay/kernels/simd_avx512.h"
#include "assay/numeric/element.h"
#include "assay/numeric/random.h"

namespace assay {
namespace {

// Shares of a thread, so that a late one is helped out.
constexpr int64_t kShares = 8;

// What a share ends in: results that are used.
std::atomic<uint32_t> sink{0};

template <typename Share>
int64_t OnEveryThread(int64_t operations_per_share, const Share& share) {
  const int64_t shares = NumThreads() * kShares;
  ParallelFor(0, shares, 1, [&](int64_t, int64_t) { sink.fetch_xor(share()); });
  return shares * operations_per_share;
}

// Lanes × sums: more chains than the latency of a multiply-add needs.
constexpr int64_t kSums = 96;
constexpr int64_t kSteps = 65536;

/// Multiply and add apart: what plain C++ compiles to.
uint32_t PlainShare() {
  alignas(64) float sums[kSums];
  for (int64_t i = 0; i < kSums; ++i) sums[i] = static_cast<float>(i);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < kSums; ++i) sums[i] = sums[i] * 0.999f + 0.001f;
  }
  float total = 0;
  for (const float sum : sums) total += sum;
  uint32_t bits = 0;
  std::memcpy(&bits, &total, sizeof(bits));
  return bits;
}

constexpr int64_t kFloatOperations = 2 * kSums * kSteps;

int64_t RunPlain() { return OnEveryThread(kFloatOperations, PlainShare); }

#if ASSAY_HAVE_AVX512

ASSAY_PUSH_TARGET("avx2,fma")

uint32_t FmaShare() {
  constexpr int64_t kChains = kSums / 8;
  __m256 sums[kChains];
  for (int64_t i = 0; i < kChains; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 factor = _mm256_set1_ps(0.999f);
  const __m256 term = _mm256_set1_ps(0.001f);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(sums[i], factor, term);
  }
  uint32_t bits = 0;
  for (int64_t i = 0; i < kChains; ++i) {
    bits ^= static_cast<uint32_t>(_mm256_movemask_ps(sums[i]));
  }
  return bits;
}

ASSAY_AVX512_END

int64_t RunFma() { return OnEveryThread(kFloatOperations, FmaShare); }

ASSAY_AVX512_BEGIN

constexpr int64_t kByteChains = 12;
constexpr int64_t kByteOperations = 2 * 64 * kByteChains * kSteps;

uint32_t ByteShare() {
  __m512i sums[kByteChains];
  for (int64_t i = 0; i < kByteChains; ++i) sums[i] = _mm512_set1_epi32(static_cast<int>(i));
  const __m512i a = _mm512_set1_epi32(0x01080307);
  const __m512i b = _mm512_set1_epi32(0x02F904FB);
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t i = 0; i < kByteChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, b);
  }
  __m512i total = _mm512_setzero_si512();
  for (int64_t i = 0; i < kByteChains; ++i) total = _mm512_xor_si512(total, sums[i]);
  return static_cast<uint32_t>(_mm_cvtsi128_si32(_mm512_castsi512_si128(total)));
}

ASSAY_AVX512_END

int64_t RunBytes() { return OnEveryThread(kByteOperations, ByteShare); }

ASSAY_AMX_BEGIN

constexpr int64_t kTileSteps = 16384;
constexpr int64_t kTileOperations = 2 * 16 * 16 * 32 * 4 * kTileSteps;

/// Random values: zeros would flatter the machine by a fifth.
uint32_t TileShare() {
  alignas(64) std::array<uint16_t, 4 * 512> words;
  Lcg random;
  for (uint16_t& word : words) word = random.NextBF16();
  ConfigureTiles();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, words.data(), 64);
  _tile_loadd(5, words.data() + 512, 64);
  _tile_loadd(6, words.data() + 1024, 64);
  _tile_loadd(7, words.data() + 1536, 64);
  for (int64_t step = 0; step < kTileSteps; ++step) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  alignas(64) std::array<uint32_t, 256> sums;
  uint32_t bits = 0;
  _tile_stored(0, sums.data(), 64);
  bits ^= sums[0];
  _tile_stored(3, sums.data(), 64);
  bits ^= sums[0];
  _tile_release();
  return bits;
}

ASSAY_AMX_END

int64_t RunTiles() { return OnEveryThread(kTileOperations, TileShare); }

#endif

}  // namespace

MultiplyPeak FindMultiplyPeak() {
#if ASSAY_HAVE_AVX512
  if (HasAmxBF16()) return {"AMX bf16 tiles", RunTiles};
  if (HasAvx512Vnni()) return {"AVX-512 VNNI int8 dot products", RunBytes};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return {"AVX2 f32 multiply-adds", RunFma};
  }
#endif
  return {"f32 multiplications and additions", RunPlain};
}

}  // namespace assay
