// A file's bytes through the npy header reader; accepted Fortran arrays are put in C order.

#include <cstdint>
#include <cstdlib>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const assay::NpyHeader header = assay::ReadNpyHeader(file, "fuzz.npy");
    const auto num_bytes = header.shape.CheckedNumBytes(header.dtype);
    if (!num_bytes || header.data_offset + *num_bytes > static_cast<int64_t>(size)) std::abort();
    const auto values =
        file.subspan(static_cast<size_t>(header.data_offset), static_cast<size_t>(*num_bytes));
    const assay::Tensor tensor = assay::FromFortranOrder({header.dtype, header.shape, values});
    if (tensor.num_bytes() != *num_bytes) std::abort();
  } catch (const assay::Error& error) {
    if (error.kind() != assay::ErrorKind::kInput) std::abort();
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
