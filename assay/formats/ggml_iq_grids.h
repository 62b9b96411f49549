#pragma once

#include <array>
#include <cstdint>

namespace assay {

/// The code books of ggml's IQ types: an index in a block names one entry, the magnitudes (IQ1: the
/// values) of eight or four consecutive weights.
/// Source: ggml (MIT licence), src/ggml-common.h; docs/formats/ggml.md says how they are stored.
using GridOf8 = std::array<int8_t, 8>;
using GridOf4 = std::array<int8_t, 4>;

extern const std::array<GridOf8, 256> kIq2XxsGrid;  ///< 8, 25, 43
extern const std::array<GridOf8, 512> kIq2XsGrid;   ///< 8, 25, 43
extern const std::array<GridOf8, 1024> kIq2SGrid;   ///< 8, 25, 43
extern const std::array<GridOf4, 256> kIq3XxsGrid;  ///< 4, 12, 20, 28, 36, 44, 52, 62
extern const std::array<GridOf4, 512> kIq3SGrid;    ///< 1, 3, 5, …, 15
extern const std::array<GridOf8, 2048> kIq1SGrid;   ///< −1, 0, 1; of IQ1_M too

}  // namespace assay
