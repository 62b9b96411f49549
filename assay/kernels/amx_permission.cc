#include "assay/kernels/amx_permission.h"

#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512 && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace assay {

#if ASSAY_HAVE_AVX512 && defined(__linux__)

namespace {

bool CpuHasTiles() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kBF16 = 1u << 22;
  constexpr unsigned kTile = 1u << 24;
  return (edx & kBF16) != 0 && (edx & kTile) != 0;
}

bool KernelGrantsTiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool HasAmxBF16() {
  static const bool usable = CpuHasTiles() && KernelGrantsTiles();
  return usable && HasAvx512Vnni();
}

#else

bool HasAmxBF16() { return false; }

#endif

}  // namespace assay
