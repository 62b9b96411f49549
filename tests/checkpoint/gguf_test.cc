#include "assay/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/text.h"
#include "assay/checkpoint/gguf_layout.h"
#include "assay/checkpoint/gguf_split.h"
#include "assay/checkpoint/model.h"
#include "assay/formats/ggml_type.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

using test::GgufBytes;
using test::MessageOf;
using ::testing::HasSubstr;

constexpr int32_t kStringType = 8;
constexpr int32_t kArrayType = 9;

GgufHeader Read(const std::string& bytes) { return ReadGgufHeader(AsBytes(bytes), "x.gguf"); }

// What a reader may do with any bytes: an input error in one line, or a header that holds together.
bool Accepts(const std::string& bytes) {
  try {
    const GgufHeader header = Read(bytes);
    uint64_t end = 0;
    for (const GgufTensorInfo& info : header.tensors) {
      EXPECT_GE(info.offset, end);
      end = info.offset + info.num_bytes;
      EXPECT_LE(header.data_offset + end, bytes.size());
      EXPECT_TRUE(info.shape.CheckedNumElements());
    }
    for (const auto& entry : header.metadata.entries()) entry.value.ToText();
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return false;
  }
}

TEST(Gguf, EveryPrefixIsRefusedUpToTheLastByteOfData) {
  for (const char* name : {"v3-align-8", "all-types", "no-tensors", "zero-dim", "scalar"}) {
    const std::string bytes = test::ReadTestData(fmt::format("ggml/gguf/good/{}.gguf", name));
    const GgufHeader header = Read(bytes);
    uint64_t end = header.data_offset;
    for (const auto& info : header.tensors) {
      end = std::max(end, header.data_offset + info.offset + info.num_bytes);
    }
    const size_t step = bytes.size() > 4096 ? 7 : 1;
    for (size_t size = 0; size < bytes.size(); size += step) {
      EXPECT_EQ(Accepts(bytes.substr(0, size)), size >= end) << name << " cut to " << size;
    }
  }
}

TEST(Gguf, EveryFlippedBitOfTheHeadGivesAnErrorOrAFile) {
  for (const char* name : {"v3-align-8", "v2", "zero-dim", "string-not-utf8"}) {
    std::string bytes = test::ReadTestData(fmt::format("ggml/gguf/good/{}.gguf", name));
    const uint64_t head = Read(bytes).data_offset;
    for (size_t i = 0; i < head; ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
        Accepts(bytes);
        bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      }
    }
  }
}

RC_GTEST_PROP(GgufProperty, AnyBytesGiveAnErrorOrAFile, ()) {
  const std::string good = test::ReadTestData("ggml/gguf/good/v3-align-64.gguf");
  std::string bytes = good;
  const auto changes = *rc::gen::container<std::vector<std::pair<uint32_t, uint8_t>>>(
      rc::gen::pair(rc::gen::inRange<uint32_t>(0, 1500), rc::gen::arbitrary<uint8_t>()));
  for (const auto& [at, value] : changes) bytes[at] = static_cast<char>(value);
  Accepts(bytes);
}

TEST(Gguf, OpensALargeVocabularyInMilliseconds) {
  constexpr uint64_t kTokens = 250'000;
  GgufBytes bytes(0, 2);
  bytes.PutString("tokenizer.ggml.tokens").Put(kArrayType).Put(kStringType).Put(kTokens);
  for (uint64_t i = 0; i < kTokens; ++i) bytes.PutString(fmt::format("token{}", i));
  bytes.PutString("tokenizer.ggml.scores").Put(kArrayType).Put<int32_t>(6).Put(kTokens);
  for (uint64_t i = 0; i < kTokens; ++i) bytes.Put(static_cast<float>(i));
  const auto begin = std::chrono::steady_clock::now();
  const GgufHeader header = Read(bytes.str());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 0.25);
  const GgufValue* tokens = header.metadata.Find("tokenizer.ggml.tokens");
  ASSERT_NE(tokens, nullptr);
  EXPECT_EQ(tokens->ToText(), "250,000 × string");
  EXPECT_EQ(tokens->Strings()[249'999], "token249999");
  // Not copied.
  EXPECT_GE(tokens->bytes().data(), AsBytes(bytes.str()).data());
}

TEST(Gguf, OpensASparseModelOf20GBByItsHead) {
  const test::TempFolder folder;
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 2000; ++i) {
    specs.push_back(
        StoredGgmlTensor(fmt::format("blk.{}.weight", i), *FindGgmlType("F16"), Shape{2500, 2000}));
  }
  const GgufLayout layout = LayOutGguf(specs, {}, "x.gguf");
  const std::string path = folder.Write("x.gguf", layout.head);
  std::filesystem::resize_file(path, static_cast<uintmax_t>(layout.num_file_bytes));
  {
    const auto begin = std::chrono::steady_clock::now();
    const Model model = Model::Open(path);
    EXPECT_EQ(model.Tensors().size(), 2000u);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 0.5);
    const Tensor last = model.Load("blk.1999.weight");
    EXPECT_EQ(last.shape(), (Shape{2500, 2000}));
    EXPECT_EQ(last.bytes().back(), std::byte{0});
  }
  // One byte less, and the last tensor is cut.
  std::filesystem::resize_file(path, static_cast<uintmax_t>(layout.num_file_bytes) - 1);
  EXPECT_THAT(MessageOf([&] { Model::Open(path); }), HasSubstr("\"blk.1999.weight\": truncated"));
}

TEST(Gguf, CountsAreBoundedByWhatFollows) {
  EXPECT_THAT(MessageOf([] { Read(GgufBytes(int64_t{1} << 40, 0).str()); }),
              HasSubstr("byte 8: header: tensor count: 1,099,511,627,776, but the 0 bytes that "
                        "follow hold at most 0; is the file truncated?"));
  EXPECT_THAT(MessageOf([] { Read(GgufBytes(0, 1).str()); }), HasSubstr("metadata count"));
}

TEST(Gguf, RefusalsNameFileByteEntryExpectedAndFound) {
  GgufBytes bytes(2, 1);
  bytes.PutU32("general.alignment", 64).PutInfo("a", 4, 0).PutInfo("b", 4, 32).Pad(64);
  EXPECT_EQ(MessageOf([&] { Read(bytes.str()); }),
            "x.gguf: byte 115: tensor info 2 \"b\": offset: expected 64, where the tensor before "
            "it ends, found 32");
}

TEST(Gguf, AZeroBeforeLargeDimensionsIsRefusedInCOrder) {
  GgufBytes bytes(1, 0);
  bytes.PutString("z").Put<uint32_t>(3);
  bytes.Put<int64_t>(0).Put(int64_t{1} << 62).Put(int64_t{1} << 62);
  bytes.Put<int32_t>(0).Put<uint64_t>(0).Pad();
  EXPECT_THAT(MessageOf([&] { Read(bytes.str()); }), HasSubstr("overflow"));
}

TEST(Gguf, BlocksAreRowsOfBytes) {
  const auto file = GgufFile::Open(test::TestDataPath("ggml/gguf/good/v3.gguf"));
  const StoredTensor& tensor = file->Tensors()[*file->Find("b.weight")];
  EXPECT_EQ(tensor.dtype, DType::kU8);
  EXPECT_EQ(tensor.shape, (Shape{3, 36}));  // 64 values: two blocks of 18 bytes
  EXPECT_EQ(file->kind(), "gguf");
  EXPECT_EQ(file->Metadata().at("test.i64.0"), "-9223372036854775808");
  EXPECT_EQ(file->Metadata().at("test.array.string"), "4 × string");
}

TEST(Gguf, MetadataTextIsShortAndReadable) {
  const auto file = GgufFile::Open(test::TestDataPath("ggml/gguf/good/string-not-utf8.gguf"));
  EXPECT_EQ(file->Metadata().at("test.raw"), "\\xFF\\xFE\\x80ok");
  EXPECT_EQ(GgufValue::Of(std::string(1023, 'a') + "ü" + "b").ToText(),
            std::string(1023, 'a') + "…");
  EXPECT_EQ(GgufValue::Of(uint32_t{4'000'000'000}).ToText(), "4000000000");
}

TEST(GgufPartName, IsTakenFromTheEndOfThePath) {
  const auto name = GgufPartName::Parse("/a/b-00002-of-00005.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "/a/b");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 5);
  EXPECT_EQ(name->PathOf(3), "/a/b-00003-of-00005.gguf");
  for (const char* other : {"b.gguf", "b-0002-of-00005.gguf", "b-00006-of-00005.gguf",
                            "b-00000-of-00005.gguf", "b-00001-of-00005.bin", "b00001-of-00005.gguf",
                            "-of-00005.gguf", "b-+0001-of-00005.gguf"}) {
    EXPECT_FALSE(GgufPartName::Parse(other)) << other;
  }
}

TEST(GgufModel, AFolderHoldsOneModel) {
  const test::TempFolder folder;
  const auto copy = [&](const std::string& from, const std::string& to) {
    folder.Write(to, test::ReadTestData("ggml/gguf/" + from));
  };
  for (int part = 1; part <= 3; ++part) {
    const std::string name = fmt::format("model-{:05}-of-00003.gguf", part);
    copy("split/ok/" + name, name);
  }
  copy("good/v3.gguf", "notes.txt");
  const Model model = Model::Open(folder.path());
  EXPECT_EQ(model.Tensors().size(), 7u);
  EXPECT_EQ(model.Files().size(), 3u);
  EXPECT_EQ(model.Path(), folder.path());

  copy("good/v3.gguf", "mmproj.gguf");
  EXPECT_EQ(MessageOf([&] { Model::Open(folder.path()); }),
            folder.path() +
                ": 2 GGUF models: \"mmproj.gguf\", \"model-00001-of-00003.gguf\"; open "
                "one of them by its path");
}

TEST(GgufModel, ANameThatSaysNothingIsReadByTheFirstBytes) {
  const test::TempFolder folder;
  const std::string path = folder.Write("blob", test::ReadTestData("ggml/gguf/good/v3.gguf"));
  EXPECT_EQ(Model::Open(path).Tensors().size(), 4u);
  const std::string part =
      folder.Write("part.gguf", test::ReadTestData("ggml/gguf/split/ok/model-00002-of-00003.gguf"));
  EXPECT_THAT(MessageOf([&] { Model::Open(part); }), HasSubstr("split.count is 3"));
}

TEST(GgufModel, OnePartOfOneIsAWholeModel) {
  const test::TempFolder folder;
  const std::string path =
      folder.Write("m-00001-of-00001.gguf", test::ReadTestData("ggml/gguf/good/v3.gguf"));
  EXPECT_EQ(Model::Open(path).Tensors().size(), 4u);
}

TEST(GgufModel, MetadataIsNoConfig) {
  const test::TempFolder folder;
  GgufMetadata metadata;
  metadata.Append("quantization_config", GgufValue::Of("{" + std::string(2000, ' ') + "}"));
  const std::string path = folder.Write("m.gguf", LayOutGguf({}, metadata, "m.gguf").head);
  const Model model = Model::Open(path);
  EXPECT_EQ(model.ConfigKey("quantization_config"), nullptr);
  EXPECT_THAT(model.Weights(), ::testing::IsEmpty());
}

TEST(GgufModel, LinkedPartsAreFoundBesideTheLink) {
  // Snapshots of the Hugging Face cache: names link to blobs elsewhere.
  const test::TempFolder blobs;
  const test::TempFolder snapshot;
  for (int part = 1; part <= 3; ++part) {
    const std::string name = fmt::format("model-{:05}-of-00003.gguf", part);
    const std::string blob = blobs.Write(fmt::format("{:x}", part * 7919),
                                         test::ReadTestData("ggml/gguf/split/ok/" + name));
    std::filesystem::create_symlink(blob, snapshot / name);
  }
  EXPECT_EQ(Model::Open(snapshot / "model-00003-of-00003.gguf").Tensors().size(), 7u);
}

}  // namespace
}  // namespace assay
