#pragma once

// The one shape of tiles that Assay's AMX code uses, for the files that multiply tiles. What is
// here may be called only where HasAmxBF16().

#include <cstdint>

#include "assay/kernels/simd_avx512.h"

#if ASSAY_HAVE_AVX512

#define ASSAY_AMX_BEGIN ASSAY_PUSH_TARGET(ASSAY_AVX512_FEATURES ",avx512bf16,amx-tile,amx-bf16")
#define ASSAY_AMX_END ASSAY_AVX512_END

namespace assay {

/// Operand of the instruction that sets the tiles up: eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t bytes_per_row[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

ASSAY_AMX_BEGIN

/// Of the calling thread; _tile_release undoes it.
inline void ConfigureTiles() {
  const TileConfig config;
  // gcc takes the instruction to read 8 bytes only, and drops the stores of the others.
  asm volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

ASSAY_AMX_END

}  // namespace assay

#endif
