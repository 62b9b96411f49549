#include "assay/studies/widen_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "assay/base/error.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

template <typename Stored>
void WidenWhole(std::span<const std::byte> bytes, std::span<double> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    Stored value;
    std::memcpy(&value, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = static_cast<double>(value);
  }
}

}  // namespace

void WidenToDouble(DType dtype, std::span<const std::byte> bytes, std::span<double> out) {
  switch (dtype) {
    case DType::kBool:
    case DType::kU8:
      return WidenWhole<uint8_t>(bytes, out);
    case DType::kI8:
      return WidenWhole<int8_t>(bytes, out);
    case DType::kI16:
      return WidenWhole<int16_t>(bytes, out);
    case DType::kU16:
      return WidenWhole<uint16_t>(bytes, out);
    case DType::kI32:
      return WidenWhole<int32_t>(bytes, out);
    case DType::kU32:
      return WidenWhole<uint32_t>(bytes, out);
    case DType::kI64:
      return WidenWhole<int64_t>(bytes, out);
    case DType::kU64:
      return WidenWhole<uint64_t>(bytes, out);
    case DType::kF64:
      return WidenWhole<double>(bytes, out);
    case DType::kF4:
    case DType::kF6E2M3:
    case DType::kF6E3M2:
    case DType::kF8E5M2:
    case DType::kF8E4M3:
    case DType::kF8E8M0:
    case DType::kF8E4M3Fnuz:
    case DType::kF8E5M2Fnuz:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF32: {
      std::vector<float> values(out.size());
      Widen(ElementOf(dtype), bytes, values);
      std::ranges::transform(values, out.begin(),
                             [](float value) { return static_cast<double>(value); });
      return;
    }
    case DType::kC64:
    case DType::kUnknown:
      break;
  }
  ThrowInternal("compare: no values in {}", NameOf(dtype));
}

}  // namespace assay
