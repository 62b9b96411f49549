#include "assay/kernels/round_activations.h"

#include <algorithm>
#include <cmath>

namespace assay {

float A8Scale(const float* x, int64_t count) noexcept {
  float largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(x[i]);
    finite = finite && std::isfinite(magnitude);
    largest = std::max(largest, magnitude);
  }
  return finite && largest >= kMinA8AbsMax ? largest / 127.0f : 0.0f;
}

void RoundActivations(const float* x, int64_t num_rows, int64_t cols, int64_t group, float* out) {
  for (int64_t m = 0; m < num_rows; ++m) {
    const float* row = x + m * cols;
    float* rounded = out + m * cols;
    for (int64_t first = 0; first < cols; first += group) {
      const int64_t count = std::min(group, cols - first);
      const float scale = A8Scale(row + first, count);
      if (scale == 0) {
        std::copy_n(row + first, count, rounded + first);
        continue;
      }
      for (int64_t i = first; i < first + count; ++i) {
        rounded[i] = std::nearbyint(row[i] / scale) * scale;
      }
    }
  }
}

}  // namespace assay
