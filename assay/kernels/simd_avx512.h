#pragma once

/// For files of AVX-512 intrinsics: functions between ASSAY_AVX512_BEGIN and ASSAY_AVX512_END may
/// use the instructions of Ice Lake and later servers (VBMI, VNNI) whatever the file is built for.
/// They may be called only where HasAvx512Vnni(). Includes stand before ASSAY_AVX512_BEGIN;
/// this header brings <immintrin.h>.
/// Why: Highway 1.0.3 has no byte dot product, multishift or masks on bytes of this kind.

#if defined(__x86_64__) && defined(__GNUC__)
// gcc's own header trips these (its "undefined" vectors), in whatever function uses it.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

#define ASSAY_HAVE_AVX512 1
/// For what an inner loop calls, where gcc may find a file too long to inline it everywhere; and
/// for functions that only prefetch: gcc sees no effect in them and drops calls not inlined.
#define ASSAY_ALWAYS_INLINE __attribute__((always_inline))
#define ASSAY_AVX512_FEATURES                                                            \
  "avx,avx2,fma,f16c,bmi,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd," \
  "avx512vbmi,avx512vbmi2,avx512vnni,avx512bitalg,avx512vpopcntdq"
#define ASSAY_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define ASSAY_PUSH_TARGET(features) \
  ASSAY_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define ASSAY_AVX512_BEGIN ASSAY_PUSH_TARGET(ASSAY_AVX512_FEATURES)
#define ASSAY_AVX512_END _Pragma("clang attribute pop")
#else
#define ASSAY_PUSH_TARGET(features) _Pragma("GCC push_options") ASSAY_PRAGMA(GCC target(features))
#define ASSAY_AVX512_BEGIN ASSAY_PUSH_TARGET(ASSAY_AVX512_FEATURES)
#define ASSAY_AVX512_END _Pragma("GCC pop_options")
#endif
#else
#define ASSAY_HAVE_AVX512 0
#endif

namespace assay {

/// The active target is avx512_dl and the CPU has everything that ASSAY_AVX512_BEGIN allows.
bool HasAvx512Vnni();

}  // namespace assay
