#include "assay/formats/cache_pages.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/formats/planes.h"

namespace assay {
namespace {

constexpr std::array<CachePageFacts, 7> kPages = {{
    {CachePageLayout::kV4Fp8, "v4-fp8", "ds4-window-fp8", 512, 584, 576},
    {CachePageLayout::kV41Fp8, "v41-fp8", "ds41-window-fp8", 512, 528, 512},
    {CachePageLayout::kV41Fp4, "v41-fp4", "ds41-main-fp4", 512, 288, 256},
    {CachePageLayout::kV41Fp4Rows, "v41-fp4-rows", "ds41-main-fp4", 512, 288, 1},
    {CachePageLayout::kIndexFp4, "index-fp4", "ds41-index-fp4", 128, 68, 1},
    {CachePageLayout::kIndexFp8, "index-fp8", "ds4-index-fp8", 128, 132, 1},
    {CachePageLayout::kV32Fp8Rows, "v32-fp8-rows", "ds32-window-fp8", 576, 656, 1},
}};

/// Where the bytes of one plane lie: token t's at `origin` + t · `stride`, `bytes` long.
struct PlanePlace {
  std::string_view plane;
  int64_t bytes;
  int64_t origin;
  int64_t stride;
};

std::vector<PlanePlace> PlacesOf(CachePageLayout layout, int64_t num_tokens) {
  const int64_t p = num_tokens;
  switch (layout) {
    case CachePageLayout::kV4Fp8:
      return {{"codes", 448, 0, 576}, {"rope", 128, 448, 576}, {"scales", 7, p * 576, 8}};
    case CachePageLayout::kV41Fp8:
      return {{"codes", 512, 0, 512}, {"scales", 16, p * 512, 16}};
    case CachePageLayout::kV41Fp4:
      return {{"codes", 256, 0, 256}, {"scales", 32, p * 256, 32}};
    case CachePageLayout::kV41Fp4Rows:
      return {{"codes", 256, 0, 288}, {"scales", 32, 256, 288}};
    case CachePageLayout::kIndexFp4:
      return {{"codes", 64, 0, 64}, {"scales", 4, p * 64, 4}};
    case CachePageLayout::kIndexFp8:
      return {{"codes", 128, 0, 128}, {"scales", 4, p * 128, 4}};
    case CachePageLayout::kV32Fp8Rows:
      return {{"codes", 512, 0, 656}, {"scales", 16, 512, 656}, {"rope", 128, 528, 656}};
  }
  ThrowInternal("cache page: layout {}", static_cast<int>(layout));
}

/// True for formats whose planes are those of the layout's own (the scale-floor variant is).
bool Holds(const CachePageFacts& facts, const EncodedMatrix& encoded) {
  if (encoded.cols != facts.dims) return false;
  const std::vector<PlaneSpec> wanted =
      Format::Parse(facts.format_name)->Layout(encoded.rows, encoded.cols, DType::kBF16);
  return wanted.size() == encoded.planes.size() &&
         std::all_of(wanted.begin(), wanted.end(), [&encoded](const PlaneSpec& spec) {
           const Tensor* plane = encoded.Find(spec.name);
           return plane != nullptr && plane->dtype() == spec.dtype && plane->shape() == spec.shape;
         });
}

}  // namespace

std::span<const CachePageFacts> CachePages() { return kPages; }

const CachePageFacts& FactsOf(CachePageLayout layout) {
  return kPages.at(static_cast<size_t>(layout));
}

int64_t CachePageBytes(CachePageLayout layout, int64_t num_tokens) {
  const CachePageFacts& facts = FactsOf(layout);
  const auto bytes = CheckedMul(num_tokens, facts.bytes_per_token);
  const auto padded = bytes ? CheckedAdd(*bytes, facts.page_multiple - 1) : std::nullopt;
  if (num_tokens < 0 || !padded) ThrowUsage("cache page of {} tokens", num_tokens);
  return *padded / facts.page_multiple * facts.page_multiple;
}

void PackCachePage(CachePageLayout layout, const EncodedMatrix& encoded,
                   std::span<std::byte> page) {
  const CachePageFacts& facts = FactsOf(layout);
  if (!Holds(facts, encoded)) {
    ThrowUsage("cache page {}: expected {} of {} dims, found {} of {}", facts.name,
               facts.format_name, facts.dims, encoded.format->Name(), encoded.cols);
  }
  const auto page_bytes = static_cast<size_t>(CachePageBytes(layout, encoded.rows));
  if (page.size() != page_bytes) {
    ThrowUsage("cache page {}: {} tokens take {} bytes, found {}", facts.name, encoded.rows,
               page_bytes, page.size());
  }
  std::fill(page.begin(), page.end(), std::byte{0});
  for (const PlanePlace& place : PlacesOf(layout, encoded.rows)) {
    const std::byte* source = encoded.Get(place.plane).bytes().data();
    for (int64_t token = 0; token < encoded.rows; ++token) {
      std::memcpy(page.data() + place.origin + token * place.stride, source + token * place.bytes,
                  static_cast<size_t>(place.bytes));
    }
  }
}

EncodedMatrix UnpackCachePage(CachePageLayout layout, std::span<const std::byte> page,
                              int64_t num_tokens) {
  const CachePageFacts& facts = FactsOf(layout);
  const int64_t page_bytes = CachePageBytes(layout, num_tokens);
  if (static_cast<int64_t>(page.size()) != page_bytes) {
    ThrowInput("cache page {}: {} tokens take {} bytes, found {}", facts.name, num_tokens,
               page_bytes, page.size());
  }
  EncodedMatrix encoded =
      AllocatePlanes(Format::Parse(facts.format_name), num_tokens, facts.dims, DType::kBF16);
  for (const PlanePlace& place : PlacesOf(layout, num_tokens)) {
    const auto plane = std::find_if(encoded.planes.begin(), encoded.planes.end(),
                                    [&place](const Plane& p) { return p.name == place.plane; });
    std::byte* target = plane->tensor.mutable_bytes().data();
    for (int64_t token = 0; token < num_tokens; ++token) {
      std::memcpy(target + token * place.bytes, page.data() + place.origin + token * place.stride,
                  static_cast<size_t>(place.bytes));
    }
  }
  return encoded;
}

}  // namespace assay
