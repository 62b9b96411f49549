# Flags shared by every target; warnings as errors come from the presets only.
add_library(assay_options INTERFACE)
target_compile_features(assay_options INTERFACE cxx_std_20)
target_compile_options(assay_options INTERFACE
  # A fused multiply-add rounds once where the format equations round twice.
  -ffp-contract=off
  -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wdouble-promotion
  -Wold-style-cast -Wcast-align -Wnon-virtual-dtor
  # GCC 12 sees an overlap in "literal" + std::string (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${ASSAY_WERROR}>:-Werror>)
# Run-time targets: scalar (EMU128), SSE4, AVX2, AVX-512, AVX-512 DL. SSSE3 adds compile
# time for machines nobody measures on. Before GCC 12.3 Highway replaces EMU128 by its one-lane SCALAR
# for the sake of GCC bug 106322, which x86-64 does not meet (google/highway#956); EMU128 has all
# operations, so it is kept.
set(ASSAY_DISABLED_TARGETS "HWY_SSSE3" CACHE STRING
  "Highway targets that are not compiled, as an expression of its HWY_* constants")
target_compile_definitions(assay_options INTERFACE
  "HWY_DISABLED_TARGETS=(${ASSAY_DISABLED_TARGETS})" HWY_WANT_AVX3_DL HWY_BROKEN_EMU128=0)
