#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay::test {

/// One group by the equations of docs/formats/affine.md, one value after the other.
struct AffineGroup {
  float scale = 0;  ///< unrounded
  float bias = 0;
  std::vector<uint8_t> codes;
};

/// Requires finite values whose range is finite.
AffineGroup EncodeAffineGroup(int bits, std::span<const float> values);

}  // namespace assay::test
