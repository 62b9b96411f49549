#include "tests/support/affine_reference.h"

#include <cmath>
#include <limits>

namespace assay::test {

AffineGroup EncodeAffineGroup(int bits, std::span<const float> values) {
  const auto top = static_cast<float>((1 << bits) - 1);
  float low = std::numeric_limits<float>::infinity();
  float high = -low;
  for (const float value : values) {
    high = high < value ? value : high;
    low = value < low ? value : low;
  }
  const bool low_is_edge = std::fabs(low) > std::fabs(high);
  float scale = (high - low) / top;
  if (scale < 1e-7F) scale = 1e-7F;
  if (!low_is_edge) scale = -scale;
  const float edge = low_is_edge ? low : high;
  const float steps = std::nearbyint(edge / scale);
  AffineGroup group;
  group.scale = steps != 0 ? edge / steps : scale;
  group.bias = steps != 0 ? edge : 0.0F;
  for (const float value : values) {
    float code = std::nearbyint((value - group.bias) / group.scale);
    code = code < 0 ? 0 : code;
    code = code > top ? top : code;
    // 0 / −0 of a constant group beyond 3.4e31.
    group.codes.push_back(std::isnan(code) ? uint8_t{0} : static_cast<uint8_t>(code));
  }
  return group;
}

}  // namespace assay::test
