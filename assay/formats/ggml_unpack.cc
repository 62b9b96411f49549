#include <algorithm>

#include "assay/base/error.h"
#include "assay/base/neon_for_sve.h"
#include "assay/formats/ggml_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/formats/ggml_unpack.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "assay/formats/ggml_unpack-inl.h"
#include "assay/formats/ggml_unpack_k-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace gu = ggml_unpack;

using ggml_internal::kGroup;
using ggml_internal::Parts;

template <auto kUnpack>
void UnpackEach(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, Parts parts) {
  for (size_t b = 0; b < num_blocks; ++b) {
    if constexpr (requires { kUnpack(blocks, parts); }) {
      kUnpack(blocks, parts);
    } else {
      kUnpack(blocks, parts, gu::PutCodes{parts});
    }
    blocks += type.block_bytes;
    parts.codes += type.block_values;
    parts.scales += static_cast<size_t>(type.block_values) / kGroup;
    parts.mins += static_cast<size_t>(type.block_values) / kGroup;
  }
}

HWY_INLINE void ScaleGroup(const int8_t* codes, float scale, float min, float* values) {
  const hn::Rebind<uint8_t, hn::CappedTag<float, kGroup>> d;
  for (size_t i = 0; i < kGroup; i += hn::Lanes(d)) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(codes + i);
    gu::PutScaled(d, hn::LoadU(d, bytes), scale, min, values + i);
  }
}

/// For blocks of 32, whose parts then stay in registers.
template <auto kUnpack>
void DecodeSmall(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, float* values) {
  constexpr size_t kGroups = 2;
  for (size_t b = 0; b < num_blocks; ++b) {
    alignas(16) int8_t codes[kGroups * kGroup];
    float scales[kGroups];
    float mins[kGroups] = {};
    kUnpack(blocks, {codes, scales, mins});
    for (size_t g = 0; g < kGroups; ++g) {
      ScaleGroup(codes + g * kGroup, scales[g], mins[g], values + g * kGroup);
    }
    blocks += type.block_bytes;
    values += kGroups * kGroup;
  }
}

/// For blocks of 256, whose codes go from the vector they are unpacked in to their values.
template <auto kUnpack>
void DecodeLarge(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, float* values) {
  constexpr size_t kValues = 256;
  alignas(64) float scales[kValues / kGroup];
  alignas(64) float mins[kValues / kGroup] = {};
  const Parts parts{nullptr, scales, mins};
  for (size_t b = 0; b < num_blocks; ++b) {
    kUnpack(blocks, parts, gu::PutValues{parts, values});
    blocks += type.block_bytes;
    values += kValues;
  }
}

struct Unpacker {
  std::string_view name;
  void (*unpack)(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, Parts parts);
  void (*decode)(const GgmlType& type, const uint8_t* blocks, size_t num_blocks,
                 float* values) = nullptr;
};

constexpr Unpacker kUnpackers[] = {
    {"Q4_0", UnpackEach<gu::UnpackQ4_0>, DecodeSmall<gu::UnpackQ4_0>},
    {"Q4_1", UnpackEach<gu::UnpackQ4_1>, DecodeSmall<gu::UnpackQ4_1>},
    {"Q5_0", UnpackEach<gu::UnpackQ5_0>, DecodeSmall<gu::UnpackQ5_0>},
    {"Q5_1", UnpackEach<gu::UnpackQ5_1>, DecodeSmall<gu::UnpackQ5_1>},
    {"Q8_0", UnpackEach<gu::UnpackQ8_0>, DecodeSmall<gu::UnpackQ8_0>},
    {"Q8_1", UnpackEach<gu::UnpackQ8_1>},
    {"Q2_K", UnpackEach<gu::UnpackQ2_K<gu::PutCodes>>, DecodeLarge<gu::UnpackQ2_K<gu::PutValues>>},
    {"Q3_K", UnpackEach<gu::UnpackQ3_K<gu::PutCodes>>, DecodeLarge<gu::UnpackQ3_K<gu::PutValues>>},
    {"Q4_K", UnpackEach<gu::UnpackQ4_K<gu::PutCodes>>, DecodeLarge<gu::UnpackQ4_K<gu::PutValues>>},
    {"Q5_K", UnpackEach<gu::UnpackQ5_K<gu::PutCodes>>, DecodeLarge<gu::UnpackQ5_K<gu::PutValues>>},
    {"Q6_K", UnpackEach<gu::UnpackQ6_K<gu::PutCodes>>, DecodeLarge<gu::UnpackQ6_K<gu::PutValues>>},
    {"Q8_K", UnpackEach<gu::UnpackQ8_K>},
    {"IQ2_XXS", UnpackEach<ggml_internal::UnpackIQ2_XXS>},
    {"IQ2_XS", UnpackEach<ggml_internal::UnpackIQ2_XS>},
    {"IQ2_S", UnpackEach<ggml_internal::UnpackIQ2_S>},
    {"IQ3_XXS", UnpackEach<ggml_internal::UnpackIQ3_XXS>},
    {"IQ3_S", UnpackEach<ggml_internal::UnpackIQ3_S>},
    {"IQ1_S", UnpackEach<ggml_internal::UnpackIQ1_S>},
    {"IQ1_M", UnpackEach<ggml_internal::UnpackIQ1_M>},
    {"IQ4_NL", UnpackEach<gu::UnpackIQ4_NL>, DecodeSmall<gu::UnpackIQ4_NL>},
    {"IQ4_XS", UnpackEach<gu::UnpackIQ4_XS<gu::PutCodes>>,
     DecodeLarge<gu::UnpackIQ4_XS<gu::PutValues>>},
    {"TQ1_0", UnpackEach<gu::UnpackTQ1_0>},
    {"TQ2_0", UnpackEach<gu::UnpackTQ2_0<gu::PutCodes>>,
     DecodeLarge<gu::UnpackTQ2_0<gu::PutValues>>},
    {"MXFP4", UnpackEach<gu::UnpackMXFP4>, DecodeSmall<gu::UnpackMXFP4>},
    {"NVFP4", UnpackEach<gu::UnpackNVFP4>},
    {"Q1_0", UnpackEach<gu::UnpackQ1_0>},
    {"Q2_0", UnpackEach<gu::UnpackQ2_0>},
};

const Unpacker& FindUnpacker(const GgmlType& type) {
  for (const Unpacker& unpacker : kUnpackers) {
    if (unpacker.name == type.name) return unpacker;
  }
  ThrowInternal("no blocks of {}", type.name);
}

void UnpackOnTarget(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, Parts parts) {
  FindUnpacker(type).unpack(type, blocks, num_blocks, parts);
}

void DecodeOnTarget(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, float* values) {
  const Unpacker& unpacker = FindUnpacker(type);
  if (unpacker.decode != nullptr) return unpacker.decode(type, blocks, num_blocks, values);
  constexpr size_t kRun = 1024;  // a multiple of every block that stays in the first cache
  constexpr size_t kGroups = kRun / kGroup;
  alignas(64) int8_t codes[kRun];
  alignas(64) float scales[kGroups];
  alignas(64) float mins[kGroups] = {};
  const auto block_values = static_cast<size_t>(type.block_values);
  while (num_blocks != 0) {
    const size_t count = std::min(num_blocks, kRun / block_values);
    unpacker.unpack(type, blocks, count, {codes, scales, mins});
    for (size_t g = 0; g < count * block_values / kGroup; ++g, values += kGroup) {
      ScaleGroup(codes + g * kGroup, scales[g], mins[g], values);
    }
    blocks += count * static_cast<size_t>(type.block_bytes);
    num_blocks -= count;
  }
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {
HWY_EXPORT(UnpackOnTarget);
HWY_EXPORT(DecodeOnTarget);
}  // namespace

void ggml_internal::UnpackBlocks(const GgmlType& type, const uint8_t* blocks, size_t num_blocks,
                                 Parts parts) {
  HWY_DYNAMIC_DISPATCH(UnpackOnTarget)(type, blocks, num_blocks, parts);
}

void ggml_internal::DecodeBlocks(const GgmlType& type, const uint8_t* blocks,
                                 std::span<float> values) {
  const size_t num_blocks = values.size() / static_cast<size_t>(type.block_values);
  HWY_DYNAMIC_DISPATCH(DecodeOnTarget)(type, blocks, num_blocks, values.data());
}

}  // namespace assay
#endif  // HWY_ONCE
