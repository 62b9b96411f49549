#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "assay/tensor/dtype.h"
#include "assay/tensor/shape.h"

namespace assay {

/// What stands before the data of an npy file.
struct NpyHeader {
  DType dtype = DType::kF32;
  Shape shape;
  bool fortran_order = false;
  int64_t data_offset = 0;
};

/// True when the file starts as every npy file does.
bool HasNpyMagic(std::string_view file) noexcept;

/// Reads the header of an npy file (versions 1.0, 2.0, 3.0) whose content is `file` and checks that
/// the file holds the data it promises. Nothing of the header is evaluated: it must be a Python
/// literal dictionary of the three keys. No byte of the data is read.
/// Errors: input, starting with `path`.
/// Source: docs/formats/npy.md.
NpyHeader ReadNpyHeader(std::span<const std::byte> file, std::string_view path);

}  // namespace assay
