#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "assay/formats/format.h"

namespace assay {

/// How engines lay the planes of a cache format out in pages. P tokens per page, token t.
/// Source: FlashMLA, vLLM; docs/formats/deepseek_cache.md has the byte maps.
enum class CachePageLayout : uint8_t {
  kV4Fp8,       ///< 584 bytes a token: rows of 576 (448 codes, 64 bf16), then 7 + 1 scale bytes
  kV41Fp8,      ///< 528: rows of 512 codes, then 16 scale bytes
  kV41Fp4,      ///< 288: rows of 256 bytes of nibbles, then 32 scale bytes
  kV41Fp4Rows,  ///< 288, row by row: 256 bytes of nibbles, 32 scale bytes
  kIndexFp4,    ///< 68: rows of 64 bytes of nibbles, then 4 scale bytes
  kIndexFp8,    ///< 132: rows of 128 codes, then one f32 scale
  kV32Fp8Rows,  ///< 656, row by row: 512 codes, 4 f32 scales, 64 bf16
};

struct CachePageFacts {
  CachePageLayout layout;
  std::string_view name;         ///< "v41-fp8"
  std::string_view format_name;  ///< the cache format whose planes it holds
  int64_t dims;                  ///< values per token
  int64_t bytes_per_token;       ///< without the padding of the page
  int64_t page_multiple;         ///< a page's size is rounded up to it
};

/// All layouts, in enum order.
std::span<const CachePageFacts> CachePages();
const CachePageFacts& FactsOf(CachePageLayout layout);

/// P · bytes_per_token rounded up to page_multiple. Requires num_tokens ≥ 0. Errors: usage when the
/// size overflows.
int64_t CachePageBytes(CachePageLayout layout, int64_t num_tokens);

/// Packs the tokens of `encoded` (one a row) into one page; padding becomes zero.
/// Requires the layout's format and dims, page.size() = CachePageBytes. Errors: usage.
void PackCachePage(CachePageLayout layout, const EncodedMatrix& encoded, std::span<std::byte> page);

/// The planes of a page of `num_tokens` tokens; padding is ignored.
/// Errors: input when page.size() is not CachePageBytes.
EncodedMatrix UnpackCachePage(CachePageLayout layout, std::span<const std::byte> page,
                              int64_t num_tokens);

}  // namespace assay
