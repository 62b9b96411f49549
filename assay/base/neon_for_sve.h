#pragma once

/// For files that keep vectors in arrays or structs, where SVE's types cannot stand: included
/// before Highway, it leaves SVE out of the file's targets, and NEON's code runs in its place.

#if defined(__aarch64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
