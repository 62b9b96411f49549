#include "assay/formats/plain.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/random.h"
#include "tests/support/every_target.h"

namespace assay {
namespace {

/// Normal values with specials, as f32 bits.
Tensor Source(int64_t rows, int64_t cols) {
  Tensor tensor = Tensor::Allocate(DType::kF32, Shape{rows, cols});
  const std::span<float> values = tensor.mutable_as<float>();
  NormalGenerator(3).Fill(values);
  constexpr uint32_t kSpecials[] = {0x7F800001, 0xFFC12345, 0x7F800000, 0x80000000,
                                    0x00000001, 0x7F7FFFFF, 0x33000000, 0x477FF000};
  for (size_t i = 0; i < std::size(kSpecials) && i < values.size(); ++i) {
    std::memcpy(&values[i], &kSpecials[i], sizeof(float));
  }
  return tensor;
}

TEST(Plain, EveryValueIsRoundedOnce) {
  const Tensor source = Source(300, 257);
  const MatrixView matrix(source.view(), 300, 257);
  std::vector<float> values(300 * 257);
  matrix.ReadRows(0, 300, values);
  const int threads_before = NumThreads();
  test::OnEveryTarget([&] {
    for (const int threads : {1, 2, 3}) {
      SetNumThreads(threads);
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const FormatPtr format = PlainFormat(dtype);
        const EncodedMatrix encoded = format->Encode(matrix, {});
        EXPECT_NO_THROW(format->Validate(encoded, "w"));
        std::vector<float> decoded(values.size());
        format->DecodeRows(encoded, 0, 300, decoded);
        for (size_t i = 0; i < values.size(); ++i) {
          const float expected = dtype == DType::kF16    ? RoundToF16(values[i])
                                 : dtype == DType::kBF16 ? RoundToBF16(values[i])
                                                         : values[i];
          ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected))
              << format->Name() << " " << i;
        }
      }
    }
  });
  SetNumThreads(threads_before);
}

TEST(Plain, ItsOwnTypeIsCopiedSignallingNaNIncluded) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    Tensor source = Tensor::Allocate(dtype, Shape{256, 256});
    for (size_t i = 0; i < 65536; ++i) {
      const auto code = static_cast<uint16_t>(i);
      std::memcpy(source.mutable_bytes().data() + 2 * i, &code, 2);
    }
    const EncodedMatrix encoded =
        PlainFormat(dtype)->Encode(MatrixView(source.view(), 256, 256), {});
    EXPECT_TRUE(std::ranges::equal(encoded.Get("values").bytes(), source.bytes()));
  }
}

TEST(Plain, NamesParseToThemselves) {
  for (const std::string& name : kPlainFamily.names()) {
    const FormatPtr format = Format::Parse(name);
    EXPECT_EQ(format->Name(), name);
    EXPECT_EQ(format->BitsPerWeight(3, 5), name == "f32" ? 32 : 16);
  }
  EXPECT_THROW(PlainFormat(DType::kF8E4M3), Error);
}

}  // namespace
}  // namespace assay
