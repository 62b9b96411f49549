#include "assay/formats/deepseek_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "assay/base/error.h"
#include "assay/formats/cache_pages.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/element.h"
#include "assay/numeric/fp8_activations.h"
#include "assay/tensor/convert.h"
#include "tests/support/bits.h"
#include "tests/support/every_target.h"
#include "tests/support/fixture.h"

namespace assay {
namespace {

using test::Fixture;
using testing::HasSubstr;

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// The capture as a matrix of rows of the last axis, rounded to bf16 first when asked.
Tensor AsRows(const Tensor& capture, bool to_bf16) {
  const Shape& shape = capture.shape();
  const int64_t cols = shape[shape.rank() - 1];
  const int64_t rows = shape.NumElements() / cols;
  if (!to_bf16 || capture.dtype() == DType::kBF16) return capture.As(capture.dtype(), {rows, cols});
  std::vector<float> values(static_cast<size_t>(rows * cols));
  ReadFloats(capture.view(), 0, values);
  Tensor rounded = Tensor::Allocate(DType::kBF16, {rows, cols});
  Round(Element::kBF16, values, rounded.mutable_bytes());
  return rounded;
}

EncodedMatrix EncodeRows(const std::string& format, const Tensor& rows) {
  return Format::Parse(format)->Encode(MatrixView(rows.view(), rows.shape()[0], rows.shape()[1]),
                                       {.tensor_name = "capture"});
}

/// What the cache holds, f32.
std::vector<float> Cached(const EncodedMatrix& encoded) {
  std::vector<float> values(static_cast<size_t>(encoded.rows * encoded.cols));
  const auto* format = dynamic_cast<const DeepSeekCacheFormat*>(encoded.format.get());
  if (format != nullptr) {
    format->DecodeCachedRows(encoded, 0, encoded.rows, values);
  } else {
    encoded.format->DecodeRows(encoded, 0, encoded.rows, values);
  }
  return values;
}

std::vector<float> Widened(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.shape().NumElements()));
  ReadFloats(tensor.view(), 0, values);
  return values;
}

int64_t Differing(const std::vector<float>& a, const std::vector<float>& b) {
  return test::DifferentElements(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), 4);
}

struct CaptureFile {
  const char* letter;
  const char* capture;
};

class CacheVectors : public testing::TestWithParam<CaptureFile> {};

TEST_P(CacheVectors, EqualTheReferenceEquationsBitForBit) {
  const Fixture captures(std::string("kv/") + GetParam().capture);
  const Fixture expected(std::string("kv/expected-") + GetParam().letter + ".safetensors");
  int64_t compared = 0;
  for (const std::string& name : expected.Names()) {
    const std::vector<std::string> parts = Split(name, '/');  // tensor/format/rounding/what
    const std::string& what = parts[3];
    const Tensor rows = AsRows(captures.Get(parts[0]), parts[2] == "bf16");
    const Tensor wanted = expected.Get(name);
    if (what == "rotated") {
      std::vector<float> rotated = Widened(rows);
      RotateIndexer(rotated, rows.dtype() == DType::kBF16);
      EXPECT_EQ(Differing(rotated, Widened(wanted)), 0) << name;
    } else {
      const EncodedMatrix encoded = EncodeRows(parts[1], rows);
      if (what == "sim") {
        EXPECT_EQ(Differing(Cached(encoded), Widened(wanted)), 0) << name;
      } else {
        EXPECT_EQ(test::DifferentElements(encoded.Get(what).bytes(), wanted.bytes()), 0) << name;
      }
    }
    compared += wanted.shape().NumElements();
  }
  RecordProperty("compared", std::to_string(compared));
}

INSTANTIATE_TEST_SUITE_P(Captures, CacheVectors,
                         testing::Values(CaptureFile{"a", "capture-a-f32.safetensors"},
                                         CaptureFile{"b", "capture-b-f16.safetensors"},
                                         CaptureFile{"c", "capture-c-bf16.safetensors"},
                                         CaptureFile{"d", "capture-d-f32.safetensors"}),
                         [](const auto& instance) { return std::string(instance.param.letter); });

TEST(DeepSeekCache, EveryTargetGivesTheSameBytes) {
  const Tensor rows =
      AsRows(Fixture("kv/capture-d-f32.safetensors").Get("kv-layer-60-window"), false);
  for (const char* name : {"ds41-window-fp8", "ds41-main-fp4", "ds4-index-fp4", "ds4-window-fp8"}) {
    const EncodedMatrix wanted = EncodeRows(name, rows);
    test::OnEveryTarget([&] {
      const EncodedMatrix encoded = EncodeRows(name, rows);
      for (size_t plane = 0; plane < wanted.planes.size(); ++plane) {
        EXPECT_EQ(test::DifferentElements(encoded.planes[plane].tensor.bytes(),
                                          wanted.planes[plane].tensor.bytes()),
                  0);
      }
      EXPECT_EQ(Differing(Cached(encoded), Cached(wanted)), 0);
    });
  }
}

TEST(DeepSeekCache, TheRotatedFormatDecodesToTheDomainOfItsSource) {
  const Tensor rows =
      AsRows(Fixture("kv/capture-a-f32.safetensors").Get("kv-layer-00-index-k"), false);
  const EncodedMatrix encoded = EncodeRows("ds4-index-fp4", rows);
  std::vector<float> decoded(static_cast<size_t>(encoded.rows * encoded.cols));
  encoded.format->DecodeRows(encoded, 0, encoded.rows, decoded);
  const std::vector<float> source = Widened(rows);
  double error = 0;
  double energy = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    const double difference = double{decoded[i]} - double{source[i]};
    error += difference * difference;
    energy += double{source[i]} * double{source[i]};
  }
  EXPECT_LT(error / energy, 0.02);
}

TEST(DeepSeekCache, NonFiniteValuesAreRefusedWithTheirPlace) {
  const Tensor rows =
      AsRows(Fixture("kv/capture-d-f32.safetensors").Get("kv-layer-61-nonfinite"), false);
  for (const char* name :
       {"ds41-window-fp8", "ds41-main-fp4", "ds41-index-fp4", "ds4-index-fp4", "ds4-window-fp8"}) {
    try {
      EncodeRows(name, rows);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      EXPECT_THAT(error.what(), HasSubstr("column")) << name;
    }
  }
}

TEST(Fp8Activations, EveryRuleGivesTheBitsOfTheReference) {
  const Fixture vectors("kv/act-fp8.safetensors");
  for (const char* input : {"bf16", "f32"}) {
    const std::vector<float> values = Widened(vectors.Get(std::string(input) + ".input"));
    for (const size_t block : {size_t{32}, size_t{64}, size_t{128}}) {
      for (const auto& [name, rule] : {std::pair{"ue8m0", Fp8ActivationScale::kPowerOfTwo},
                                       {"linear", Fp8ActivationScale::kLinear},
                                       {"divide", Fp8ActivationScale::kDivide}}) {
        std::vector<uint8_t> codes(values.size());
        std::vector<float> scales(values.size() / block);
        QuantiseFp8Activations(values, block, rule, codes, scales);
        const std::string prefix = fmt::format("{}.b{}.{}.", input, block, name);
        EXPECT_EQ(test::DifferentElements(std::as_bytes(std::span(codes)),
                                          vectors.Get(prefix + "codes").bytes()),
                  0)
            << prefix;
        EXPECT_EQ(test::DifferentElements(std::as_bytes(std::span(scales)),
                                          vectors.Get(prefix + "scales").bytes(), 4),
                  0)
            << prefix;
      }
    }
  }
}

Tensor FirstRows(const Tensor& rows, int64_t count) {
  const auto bytes = static_cast<size_t>(rows.num_bytes() / rows.shape()[0] * count);
  Tensor first = Tensor::Allocate(rows.dtype(), {count, rows.shape()[1]});
  std::copy_n(rows.bytes().begin(), bytes, first.mutable_bytes().begin());
  return first;
}

struct PageCase {
  const char* page;
  CachePageLayout layout;
  const char* capture;
};

class CachePageVectors : public testing::TestWithParam<PageCase> {};

TEST_P(CachePageVectors, PackToTheEnginesBytesAndDecodeToTheSimulation) {
  const PageCase& test_case = GetParam();
  const Fixture pages("kv/pages.safetensors");
  const Fixture captures("kv/capture-c-bf16.safetensors");
  for (const int64_t tokens : {int64_t{2}, int64_t{64}}) {
    const Tensor page = pages.Get(fmt::format("{}.p{}", test_case.page, tokens));
    const Tensor rows = FirstRows(AsRows(captures.Get(test_case.capture), false), tokens);
    const CachePageFacts& facts = FactsOf(test_case.layout);
    const EncodedMatrix encoded = EncodeRows(std::string(facts.format_name), rows);
    ASSERT_EQ(CachePageBytes(test_case.layout, tokens), page.num_bytes());
    std::vector<std::byte> packed(page.bytes().size(), std::byte{0xAA});
    PackCachePage(test_case.layout, encoded, packed);
    EXPECT_EQ(test::DifferentElements(packed, page.bytes()), 0) << facts.name;
    const EncodedMatrix unpacked = UnpackCachePage(test_case.layout, page.bytes(), tokens);
    EXPECT_NO_THROW(unpacked.format->Validate(unpacked, "page"));
    EXPECT_EQ(Differing(Cached(unpacked), Cached(encoded)), 0) << facts.name;
    const std::vector<std::byte> longer(page.bytes().size() + 1);
    EXPECT_THROW(UnpackCachePage(test_case.layout, longer, tokens), Error);
    EXPECT_THROW(
        UnpackCachePage(test_case.layout, page.bytes().first(page.bytes().size() - 1), tokens),
        Error);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Engines, CachePageVectors,
    testing::Values(PageCase{"page584", CachePageLayout::kV4Fp8, "kv-layer-20-window"},
                    PageCase{"page528", CachePageLayout::kV41Fp8, "kv-layer-20-window"},
                    PageCase{"page288", CachePageLayout::kV41Fp4, "kv-layer-20-main"},
                    PageCase{"rows288", CachePageLayout::kV41Fp4Rows, "kv-layer-20-main"},
                    PageCase{"page68", CachePageLayout::kIndexFp4, "kv-layer-20-index-k"},
                    PageCase{"page132", CachePageLayout::kIndexFp8, "kv-layer-20-index-k"}),
    [](const auto& instance) { return std::string(instance.param.page); });

TEST(CachePages, RowsOfV32EqualFlashMlas) {
  const Fixture pages("kv/pages.safetensors");
  const Tensor rows = pages.Get("v32.input");
  const EncodedMatrix encoded = EncodeRows("ds32-window-fp8", rows);
  const Tensor wanted = pages.Get("rows656");
  std::vector<std::byte> packed(wanted.bytes().size());
  PackCachePage(CachePageLayout::kV32Fp8Rows, encoded, packed);
  EXPECT_EQ(test::DifferentElements(packed, wanted.bytes()), 0);
}

TEST(CachePages, BothFloorRulesEqualTheirEngines) {
  const Fixture pages("kv/pages.safetensors");
  const Tensor window =
      AsRows(Fixture("kv/capture-d-f32.safetensors").Get("kv-layer-60-window"), true);
  const Tensor rows = FirstRows(window, 32);
  for (const auto& [format, name] :
       {std::pair{"ds41-window-fp8", "page528_edges.reference_floor"},
        {"ds41-window-fp8:scale-floor", "page528_edges.scale_floor"}}) {
    const Tensor wanted = pages.Get(name);
    std::vector<std::byte> packed(wanted.bytes().size());
    PackCachePage(CachePageLayout::kV41Fp8, EncodeRows(format, rows), packed);
    EXPECT_EQ(test::DifferentElements(packed, wanted.bytes()), 0) << name;
  }
}

TEST(CachePages, AMatrixOfAnotherFormatIsRefused) {
  const Tensor rows = Tensor::Allocate(DType::kF32, {1, 512});
  std::vector<std::byte> page(528);
  EXPECT_THROW(PackCachePage(CachePageLayout::kV41Fp8, EncodeRows("ds41-main-fp4", rows), page),
               Error);
}

}  // namespace
}  // namespace assay
