#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace assay {

/// Reads `count` rows of a matrix from `first` into floats.
using RowReader = std::function<void(int64_t first, int64_t count, std::span<float> out)>;

}  // namespace assay
