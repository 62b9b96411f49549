#include <assay/formats/format.h>

#include <array>
#include <cstdio>

int main() {
  const std::array<float, 32> values{1.0F, -2.0F, 0.5F};
  const assay::MatrixView matrix({assay::DType::kF32, {1, 32}, std::as_bytes(std::span(values))}, 1,
                                 32);
  const auto encoded = assay::Format::Parse("affine4g32")->Encode(matrix, {.tensor_name = "w"});
  std::array<float, 32> decoded{};
  encoded.format->DecodeRows(encoded, 0, 1, decoded);
  std::printf("%s: %.1f bits per weight, -2 became %g\n", encoded.format->Name().c_str(),
              encoded.format->BitsPerWeight(1, 32), double{decoded[1]});
}
