#include "assay/formats/ggml_blocks.h"

#include <algorithm>

#include "assay/base/error.h"
#include "assay/formats/ggml_encode.h"

namespace assay::ggml_internal {
namespace {

/// Values taken apart at a time: a multiple of every block that stays in the first cache.
constexpr size_t kRun = 1024;

template <auto kUnpack>
void UnpackEach(const GgmlType& type, const uint8_t* blocks, size_t num_blocks, Parts parts) {
  for (size_t b = 0; b < num_blocks; ++b) {
    kUnpack(blocks, parts);
    blocks += type.block_bytes;
    parts.codes += type.block_values;
    parts.scales += static_cast<size_t>(type.block_values) / kGroup;
    parts.mins += static_cast<size_t>(type.block_values) / kGroup;
  }
}

constexpr Codec kCodecs[] = {
    {"Q4_0", UnpackEach<UnpackQ4_0>, EncodeQ4_0},
    {"Q4_1", UnpackEach<UnpackQ4_1>, EncodeQ4_1},
    {"Q5_0", UnpackEach<UnpackQ5_0>, EncodeQ5_0},
    {"Q5_1", UnpackEach<UnpackQ5_1>, EncodeQ5_1},
    {"Q8_0", UnpackEach<UnpackQ8_0>, EncodeQ8_0},
    {"Q8_1", UnpackEach<UnpackQ8_1>, EncodeQ8_1},
    {"Q2_K", UnpackEach<UnpackQ2_K>, EncodeQ2_K},
    {"Q3_K", UnpackEach<UnpackQ3_K>, EncodeQ3_K},
    {"Q4_K", UnpackEach<UnpackQ4_K>, EncodeQ4_K},
    {"Q5_K", UnpackEach<UnpackQ5_K>, EncodeQ5_K},
    {"Q6_K", UnpackEach<UnpackQ6_K>, EncodeQ6_K},
    {"Q8_K", UnpackEach<UnpackQ8_K>, EncodeQ8_K},
    {"IQ2_XXS", UnpackEach<UnpackIQ2_XXS>},
    {"IQ2_XS", UnpackEach<UnpackIQ2_XS>},
    {"IQ2_S", UnpackEach<UnpackIQ2_S>},
    {"IQ3_XXS", UnpackEach<UnpackIQ3_XXS>},
    {"IQ3_S", UnpackEach<UnpackIQ3_S>},
    {"IQ1_S", UnpackEach<UnpackIQ1_S>},
    {"IQ1_M", UnpackEach<UnpackIQ1_M>},
    {"IQ4_NL", UnpackEach<UnpackIQ4_NL>, EncodeIQ4_NL},
    {"IQ4_XS", UnpackEach<UnpackIQ4_XS>, EncodeIQ4_XS},
    {"TQ1_0", UnpackEach<UnpackTQ1_0>, EncodeTQ1_0},
    {"TQ2_0", UnpackEach<UnpackTQ2_0>, EncodeTQ2_0},
    {"MXFP4", UnpackEach<UnpackMXFP4>, EncodeMXFP4},
    {"NVFP4", UnpackEach<UnpackNVFP4>, EncodeNVFP4},
    {"Q1_0", UnpackEach<UnpackQ1_0>, EncodeQ1_0},
    {"Q2_0", UnpackEach<UnpackQ2_0>, EncodeQ2_0},
};

}  // namespace

const Codec& CodecOf(const GgmlType& type) {
  const auto* found = std::find_if(std::begin(kCodecs), std::end(kCodecs),
                                   [&](const Codec& codec) { return codec.name == type.name; });
  if (found == std::end(kCodecs)) ThrowInternal("no blocks of {}", type.name);
  return *found;
}

void DecodeBlocks(const GgmlType& type, const uint8_t* blocks, std::span<float> values) {
  const Codec& codec = CodecOf(type);
  std::array<int8_t, kRun> codes;
  std::array<float, kRun / kGroup> scales;
  std::array<float, kRun / kGroup> mins{};
  const Parts parts{codes.data(), scales.data(), mins.data()};
  const auto block_values = static_cast<size_t>(type.block_values);
  while (!values.empty()) {
    const size_t count = std::min(kRun, values.size());
    const size_t num_blocks = count / block_values;
    codec.unpack(type, blocks, num_blocks, parts);
    ScaleCodes(parts, count / kGroup, values.data());
    blocks += num_blocks * static_cast<size_t>(type.block_bytes);
    values = values.subspan(count);
  }
}

}  // namespace assay::ggml_internal
