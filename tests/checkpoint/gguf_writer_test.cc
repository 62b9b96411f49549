#include "assay/checkpoint/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "assay/base/text.h"
#include "assay/checkpoint/gguf.h"
#include "assay/checkpoint/writer.h"
#include "assay/formats/ggml_type.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

using test::MessageOf;
using ::testing::HasSubstr;

// The tensors in the order of the file.
std::vector<TensorSpec> SpecsOf(const GgufFile& file) {
  std::vector<TensorSpec> specs;
  for (const GgufTensorInfo& info : file.header().tensors) {
    specs.push_back(file.Tensors()[*file.Find(info.name)]);
  }
  return specs;
}

void Copy(const GgufFile& source, const std::string& path, int64_t piece = 7) {
  const std::vector<TensorSpec> specs = SpecsOf(source);
  GgufWriter writer(path, specs, source.header().metadata);
  // Last tensor first, in pieces from the back: the order of writing does not matter.
  for (size_t i = specs.size(); i-- > 0;) {
    const Tensor tensor = source.Get(specs[i].name);
    for (int64_t end = tensor.num_bytes(); end > 0; end -= piece) {
      const int64_t begin = std::max<int64_t>(0, end - piece);
      writer.Write(
          specs[i].name,
          tensor.bytes().subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
          begin);
    }
  }
  writer.Commit();
}

std::vector<std::string> GoodFiles() {
  std::vector<std::string> names;
  for (const std::string& name : test::TempFolder::NamesIn(test::TestDataPath("ggml/gguf/good"))) {
    if (name.ends_with(".gguf")) names.push_back("ggml/gguf/good/" + name);
  }
  return names;
}

TEST(GgufWriter, EveryGoodFileComesBackEqual) {
  const test::TempFolder folder;
  ASSERT_EQ(GoodFiles().size(), 19u);
  for (const std::string& name : GoodFiles()) {
    SCOPED_TRACE(name);
    const auto source = GgufFile::Open(test::TestDataPath(name));
    const std::string path = folder / "copy.gguf";
    Copy(*source, path);
    const auto copy = GgufFile::Open(path);
    EXPECT_EQ(copy->header().version, 3u);
    EXPECT_EQ(copy->header().alignment, source->header().alignment);
    EXPECT_TRUE(copy->header().metadata == source->header().metadata);
    ASSERT_EQ(copy->header().tensors.size(), source->header().tensors.size());
    for (size_t i = 0; i < copy->header().tensors.size(); ++i) {
      const GgufTensorInfo& a = copy->header().tensors[i];
      const GgufTensorInfo& b = source->header().tensors[i];
      EXPECT_EQ(a.name, b.name);
      EXPECT_EQ(a.type, b.type);
      EXPECT_EQ(a.shape, b.shape);
      EXPECT_EQ(a.offset, b.offset);
      EXPECT_EQ(AsText(copy->Get(a.name).bytes()), AsText(source->Get(a.name).bytes()));
    }
  }
}

TEST(GgufWriter, FilesLaidOutAsTheReferenceDoesComeBackByteForByte) {
  const test::TempFolder folder;
  for (const char* name : {"v3", "v3-align-8", "v3-align-64", "v3-align-4096", "all-types", "empty",
                           "four-dims", "trailing-ones", "scalar", "zero-dim", "zero-dims-96-bytes",
                           "bool-2", "string-not-utf8", "array-empty", "name-63-bytes"}) {
    const std::string fixture = fmt::format("ggml/gguf/good/{}.gguf", name);
    const std::string path = folder / "copy.gguf";
    Copy(*GgufFile::Open(test::TestDataPath(fixture)), path, 1000);
    EXPECT_TRUE(test::ReadFile(path) == test::ReadTestData(fixture)) << name;
  }
}

TEST(GgufWriter, MetadataIsReplacedInPlaceOrAddedAtTheEnd) {
  const auto source = GgufFile::Open(test::TestDataPath("ggml/gguf/good/v3.gguf"));
  GgufMetadata metadata = source->header().metadata;
  metadata.Set("test.u32.0", GgufValue::Of(uint32_t{14}));
  metadata.Set("general.name", GgufValue::Of("a new name"));
  metadata.Erase("test.array.string");
  const std::string head = LayOutGguf(SpecsOf(*source), metadata, "x").head;
  std::string file = head;
  file.resize(head.size() + 4096);
  const GgufHeader header = ReadGgufHeader(AsBytes(file), "x");
  EXPECT_EQ(header.metadata.entries().size(), source->header().metadata.entries().size());
  EXPECT_EQ(header.metadata.Integer("test.u32.0"), 14);
  EXPECT_EQ(header.metadata.entries().back().key, "general.name");
  EXPECT_EQ(header.metadata.String("general.name"), "a new name");
  EXPECT_EQ(header.metadata.Find("test.array.string"), nullptr);
}

TEST(GgufWriter, RefusesWhatTheFormatCannotHold) {
  const auto message = [](TensorSpec spec, const GgufMetadata& metadata = {}) {
    return MessageOf([&] { LayOutGguf({spec}, metadata, "out.gguf"); });
  };
  EXPECT_EQ(message({"a", DType::kU8, Shape{4}}),
            "out.gguf: tensor \"a\": U8: no GGUF file holds this element type");
  EXPECT_THAT(message({std::string(64, 'n'), DType::kF32, Shape{4}}), HasSubstr("64 bytes"));
  EXPECT_THAT(message({"a", DType::kF32, Shape{1, 1, 1, 1, 1}}), HasSubstr("up to 4"));
  GgufMetadata metadata;
  metadata.Set("general.alignment", GgufValue::Of(uint32_t{24}));
  EXPECT_THAT(message({"a", DType::kF32, Shape{4}}, metadata), HasSubstr("power of two"));
  EXPECT_THAT(MessageOf([] {
                LayOutGguf({{"a", DType::kF32, Shape{4}}, {"a", DType::kF32, Shape{4}}}, {}, "x");
              }),
              HasSubstr("given twice"));
}

TEST(GgufWriter, BlocksDoNotGoIntoSafetensors) {
  const TensorSpec blocks{"a", DType::kU8, Shape{2, 18}, FindGgmlType("Q4_0")};
  EXPECT_EQ(MessageOf([&] { LayOutSafetensors({blocks}, {}, {}, "x.safetensors"); }),
            "x.safetensors: tensor \"a\": blocks of Q4_0 stand in GGUF files, not in safetensors");
}

TEST(GgufWriter, NothingAppearsBeforeCommit) {
  const test::TempFolder folder;
  const std::string path = folder / "x.gguf";
  {
    GgufWriter writer(path, {{"a", DType::kF32, Shape{4}}}, {});
    EXPECT_FALSE(std::filesystem::exists(path));
    EXPECT_THAT(MessageOf([&] { writer.Commit(); }, ErrorKind::kInternal),
                HasSubstr("0 of 16 bytes"));
  }
  EXPECT_THAT(folder.Names(), ::testing::IsEmpty());
}

RC_GTEST_PROP(GgufWriterProperty, WhatIsLaidOutIsRead, ()) {
  GgufMetadata metadata;
  const auto shift = *rc::gen::inRange<uint32_t>(0, 13);
  metadata.Set("general.alignment", GgufValue::Of(uint32_t{1} << shift));
  const auto texts = *rc::gen::arbitrary<std::vector<std::string>>();
  for (size_t i = 0; i < texts.size(); ++i) {
    metadata.Append(fmt::format("key.{}", i), GgufValue::Of(texts[i]));
  }
  std::vector<TensorSpec> specs;
  const auto types =
      *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, GgmlTypes().size()));
  for (const size_t index : types) {
    const GgmlType& type = GgmlTypes()[index];
    const auto rank = *rc::gen::inRange<size_t>(1, 5);
    std::vector<int64_t> dims;
    for (size_t axis = 0; axis < rank; ++axis) dims.push_back(*rc::gen::inRange<int64_t>(0, 4));
    dims.back() *= type.block_values;
    specs.push_back(StoredGgmlTensor(fmt::format("t{}", specs.size()), type, Shape(dims)));
  }
  const GgufLayout layout = LayOutGguf(specs, metadata, "x");
  RC_ASSERT(layout.head == LayOutGguf(specs, metadata, "x").head);
  std::string file = layout.head;
  file.resize(static_cast<size_t>(layout.num_file_bytes));
  const GgufHeader header = ReadGgufHeader(AsBytes(file), "x");
  RC_ASSERT(header.metadata == metadata);
  RC_ASSERT(header.tensors.size() == specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const GgufTensorInfo& info = header.tensors[i];
    RC_ASSERT(static_cast<int64_t>(header.data_offset + info.offset) == layout.offsets[i]);
    const StoredTensor stored = StoredGgmlTensor(info.name, *info.type, info.shape);
    RC_ASSERT(stored.name == specs[i].name);
    RC_ASSERT(stored.dtype == specs[i].dtype);
    RC_ASSERT(stored.shape == specs[i].shape);
    RC_ASSERT(stored.block_type == specs[i].block_type);
  }
}

}  // namespace
}  // namespace assay
