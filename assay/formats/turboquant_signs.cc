#include <array>
#include <random>

#include "assay/formats/turboquant.h"

namespace assay {
namespace {

/// CRC-32 of zlib and of IEEE 802.3: reflected polynomial 0xEDB88320.
uint32_t Crc32(std::string_view text) {
  uint32_t crc = ~uint32_t{0};
  for (const char c : text) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

}  // namespace

std::vector<int8_t> TurboQuantSigns(std::string_view tensor_name, int64_t cols) {
  std::mt19937 generator(Crc32(tensor_name));
  std::vector<int8_t> signs(static_cast<size_t>(cols));
  for (int8_t& sign : signs) sign = (generator() & 1) != 0 ? int8_t{1} : int8_t{-1};
  return signs;
}

}  // namespace assay
