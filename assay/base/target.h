#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// Instruction sets that vectorised code was compiled for and this CPU runs, best first, of
/// "avx512_dl", "avx512", "avx2", "sse4", "scalar" on x86, where "scalar" is always there: plain
/// C++ on 16-byte vectors. On 64-bit Arm "sve2_128", "sve_256", "sve2", "sve", "neon", where "neon"
/// is always there; of the two with a width, the one that is the CPU's.
std::vector<std::string> SupportedTargets();

/// The one that vectorised code runs now: what a probe that is dispatched like every kernel
/// answers.
std::string ActiveTargetName();

/// Bytes of its vectors.
size_t ActiveVectorBytes();

/// Makes all vectorised code run on `name` from the next call on, in every thread.
/// Errors: usage for a name that does not exist, or that this CPU does not run.
void ForceTarget(std::string_view name);

/// Back to the best one.
void ResetTarget();

/// ForceTarget of the environment variable ASSAY_TARGET, when it is set and not empty.
/// Why: a program's main calls it first, so that a wrong name is a usage error rather than a crash
/// before main. Errors: usage.
void SelectTargetFromEnvironment();

}  // namespace assay
