#include "assay/kernels/simd_avx512.h"

#include "assay/base/target.h"

namespace assay {

bool HasAvx512Vnni() {
#if ASSAY_HAVE_AVX512
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         ActiveTargetName() == "avx512_dl";
#else
  return false;
#endif
}

}  // namespace assay
