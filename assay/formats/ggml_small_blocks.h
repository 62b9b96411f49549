#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// The loops over values of the types without a search: of those whose blocks hold 32, for sixteen
/// blocks at a time, and of the fp4 types.
namespace assay::ggml_internal {

inline constexpr size_t kSmallBlock = 32;
inline constexpr size_t kSmallRun = 16;  ///< blocks

/// Smallest and largest value of each block; zeros of either sign are equal.
void FindRanges(const float* values, size_t num_blocks, float* low, float* high);

enum class CodeRounding : uint8_t {
  kTruncate,      ///< toward zero
  kAwayFromZero,  ///< nearest, ties away from zero
};

/// How the values of a block become codes: (x − subtract[block]) · factor[block] + add, rounded, at
/// most `limit`.
struct CodeRule {
  CodeRounding rounding = CodeRounding::kTruncate;
  const float* factor = nullptr;
  const float* subtract = nullptr;
  float add = 0;
  int limit = 127;
};

/// One code a byte. Requires results that fit one.
void ChooseCodes(const float* values, size_t num_blocks, const CodeRule& rule, int8_t* codes);

/// Nearest fp4 codes of groups of sixteen values, each group in steps of its half scale: of two
/// equally near codes the smaller magnitude, of two zeros +0; all +0 when the half scale is 0.
/// Requires |x| < 2^16 half scales, so that no difference to a code rounds.
void NearestE2M1(const float* values, std::span<const float> half_scales, uint8_t* codes);

/// Indices of the entries of kIq4Values nearest to values · factor, for 32 values; of two equally
/// near entries the larger.
void NearestIq4(const float* values, float factor, uint8_t* codes);

}  // namespace assay::ggml_internal
