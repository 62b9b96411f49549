#include "assay/tensor/dtype.h"

#include <array>

namespace assay {
namespace {

struct DTypeFacts {
  DType dtype;
  std::string_view name;
  int bits;
};

constexpr std::array kFacts = {
    DTypeFacts{DType::kBool, "BOOL", 8},
    DTypeFacts{DType::kF4, "F4", 4},
    DTypeFacts{DType::kF6E2M3, "F6_E2M3", 6},
    DTypeFacts{DType::kF6E3M2, "F6_E3M2", 6},
    DTypeFacts{DType::kU8, "U8", 8},
    DTypeFacts{DType::kI8, "I8", 8},
    DTypeFacts{DType::kF8E5M2, "F8_E5M2", 8},
    DTypeFacts{DType::kF8E4M3, "F8_E4M3", 8},
    DTypeFacts{DType::kF8E8M0, "F8_E8M0", 8},
    DTypeFacts{DType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    DTypeFacts{DType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    DTypeFacts{DType::kI16, "I16", 16},
    DTypeFacts{DType::kU16, "U16", 16},
    DTypeFacts{DType::kF16, "F16", 16},
    DTypeFacts{DType::kBF16, "BF16", 16},
    DTypeFacts{DType::kI32, "I32", 32},
    DTypeFacts{DType::kU32, "U32", 32},
    DTypeFacts{DType::kF32, "F32", 32},
    DTypeFacts{DType::kC64, "C64", 64},
    DTypeFacts{DType::kF64, "F64", 64},
    DTypeFacts{DType::kI64, "I64", 64},
    DTypeFacts{DType::kU64, "U64", 64},
    DTypeFacts{DType::kUnknown, "?", 0},
};

const DTypeFacts& FactsOf(DType dtype) noexcept { return kFacts[static_cast<size_t>(dtype)]; }

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (static_cast<size_t>(kFacts[i].dtype) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder());

}  // namespace

int BitsOf(DType dtype) noexcept { return FactsOf(dtype).bits; }

std::string_view NameOf(DType dtype) noexcept { return FactsOf(dtype).name; }

std::optional<DType> ParseDType(std::string_view name) noexcept {
  for (const DTypeFacts& facts : kFacts) {
    if (facts.name == name && facts.dtype != DType::kUnknown) return facts.dtype;
  }
  return std::nullopt;
}

bool IsWeightFloat(DType dtype) noexcept {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

bool WidensToFloat(DType dtype) noexcept {
  switch (dtype) {
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
    case DType::kF32:
      return true;
    case DType::kBool:
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
    case DType::kU16:
    case DType::kI32:
    case DType::kU32:
    case DType::kC64:
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kUnknown:
      return false;
  }
  return false;
}

}  // namespace assay
