#include "assay/base/target.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "assay/base/error.h"
#include "assay/base/text.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "assay/base/target.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace assay::HWY_NAMESPACE {

// The probe: compiled once per target, so its answer is the target whose code was called.
int64_t ProbeTarget() { return HWY_TARGET; }

size_t ProbeVectorBytes() {
  return hwy::HWY_NAMESPACE::Lanes(hwy::HWY_NAMESPACE::ScalableTag<uint8_t>());
}

}  // namespace assay::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace assay {
namespace {

HWY_EXPORT(ProbeTarget);
HWY_EXPORT(ProbeVectorBytes);

constexpr int64_t kFallback = HWY_TARGETS & (HWY_EMU128 | HWY_SCALAR);

std::string NameOfTarget(int64_t target) {
  switch (target) {
    case HWY_EMU128:
    case HWY_SCALAR:
      return "scalar";
    case HWY_AVX3:
      return "avx512";
    case HWY_AVX3_DL:
      return "avx512_dl";
    default:
      return Lower(hwy::TargetName(target));
  }
}

/// Lowest bit first: Highway numbers better targets lower.
std::vector<int64_t> TargetsIn(int64_t mask) {
  std::vector<int64_t> targets;
  for (; mask != 0; mask &= mask - 1) targets.push_back(mask & -mask);
  return targets;
}

std::vector<std::string> NamesOf(int64_t mask) {
  std::vector<std::string> names;
  for (const int64_t target : TargetsIn(mask)) names.push_back(NameOfTarget(target));
  return names;
}

int64_t DetectedTargets() {
  static const int64_t detected = (hwy::SupportedTargets() & HWY_TARGETS) | kFallback;
  return detected;
}

}  // namespace

std::vector<std::string> SupportedTargets() { return NamesOf(DetectedTargets()); }

std::string ActiveTargetName() { return NameOfTarget(HWY_DYNAMIC_DISPATCH(ProbeTarget)()); }

size_t ActiveVectorBytes() { return HWY_DYNAMIC_DISPATCH(ProbeVectorBytes)(); }

void ForceTarget(std::string_view name) {
  for (const int64_t target : TargetsIn(HWY_TARGETS)) {
    if (NameOfTarget(target) != name) continue;
    if ((DetectedTargets() & target) == 0) {
      ThrowUsage("target \"{}\": this CPU does not run it; it runs: {}", name,
                 fmt::join(SupportedTargets(), ", "));
    }
    hwy::GetChosenTarget().Update(target);
    return;
  }
  ThrowUsage("unknown target \"{}\"; known: {}", name, fmt::join(NamesOf(HWY_TARGETS), ", "));
}

void ResetTarget() { hwy::GetChosenTarget().Update(DetectedTargets()); }

void SelectTargetFromEnvironment() {
  const char* name = std::getenv("ASSAY_TARGET");
  if (name == nullptr || *name == '\0') return;
  ForceTarget(name);
}

}  // namespace assay
#endif  // HWY_ONCE
