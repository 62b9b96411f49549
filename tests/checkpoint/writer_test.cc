#include "assay/checkpoint/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "assay/base/parallel.h"
#include "assay/base/temporary.h"
#include "assay/base/text.h"
#include "assay/checkpoint/model.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::MessageOf;
using test::ReadFile;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr SafetensorsStyle kReferenceBytes = {TensorOrder::kReference, 8};

// Writes a copy of an open file.
void Copy(const Container& source, const std::string& path, const SafetensorsStyle& style) {
  auto writer = SafetensorsWriter::ToFile(path, source.Tensors(), source.Metadata(), style);
  for (size_t i = 0; i < source.Tensors().size(); ++i) {
    writer->Write(source.Tensors()[i].name, source.Load(i).bytes());
  }
  writer->Commit();
}

void ExpectSameContent(const Container& a, const Container& b) {
  EXPECT_EQ(a.Metadata(), b.Metadata());
  ASSERT_EQ(a.Tensors().size(), b.Tensors().size());
  for (size_t i = 0; i < a.Tensors().size(); ++i) {
    EXPECT_EQ(a.Tensors()[i].name, b.Tensors()[i].name);
    EXPECT_EQ(a.Tensors()[i].dtype, b.Tensors()[i].dtype);
    EXPECT_EQ(a.Tensors()[i].shape, b.Tensors()[i].shape);
    EXPECT_EQ(AsText(a.Load(i).bytes()), AsText(b.Load(i).bytes()));
  }
}

// Files that the reference writer made (or a writer with the same bytes).
TEST(SafetensorsWriter, GivesTheReferenceWritersBytes) {
  const TempFolder folder;
  for (const char* name :
       {"mlx/affine4g64-bf16.safetensors", "mlx/affine3g32-f32.safetensors",
        "files/safetensors/ok-one.safetensors", "files/safetensors/ok-all-dtypes.safetensors",
        "files/safetensors/ok-zero-size-dims.safetensors",
        "files/safetensors/ok-empty-set-padded.safetensors"}) {
    const auto source = SafetensorsFile::Open(test::TestDataPath(name));
    Copy(*source, folder / "copy.safetensors", kReferenceBytes);
    EXPECT_EQ(ReadFile(folder / "copy.safetensors"), test::ReadTestData(name)) << name;
  }
}

TEST(SafetensorsWriter, AlignsTheDataTo64Bytes) {
  const TempFolder folder;
  for (const std::string& name : {std::string("w"), std::string("ww"), std::string(77, 'w')}) {
    auto writer = SafetensorsWriter::ToFile(folder / "a", {{name, DType::kU8, Shape{1}}});
    writer->Write(name, AsBytes("x"));
    writer->Commit();
    EXPECT_EQ(ReadFile(folder / "a").size() % 64, 1u);
    EXPECT_EQ(SafetensorsFile::Open(folder / "a")->Get(name).bytes()[0], std::byte{'x'});
  }
}

RC_GTEST_PROP(SafetensorsWriter, WhatIsWrittenIsReadBack, ()) {
  const TempFolder folder;
  const auto names = *rc::gen::unique<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange<char>(0, 127)));
  std::vector<TensorSpec> tensors;
  std::vector<std::string> contents;
  for (const std::string& name : names) {
    const auto dtype = static_cast<DType>(*rc::gen::inRange(0, static_cast<int>(DType::kUnknown)));
    const Shape shape{*rc::gen::inRange<int64_t>(0, 4), 8 * *rc::gen::inRange<int64_t>(0, 3)};
    tensors.push_back({name, dtype, shape});
    contents.push_back(*rc::gen::container<std::string>(
        static_cast<size_t>(*shape.CheckedNumBytes(dtype)), rc::gen::arbitrary<char>()));
  }
  const SafetensorsStyle style{*rc::gen::element(TensorOrder::kReference, TensorOrder::kAsGiven),
                               *rc::gen::element<int64_t>(8, 16, 64, 4096)};
  auto writer = SafetensorsWriter::ToFile(folder / "f", tensors, {{"k", "v\n\""}}, style);
  for (size_t i = tensors.size(); i-- > 0;) {  // any order
    const auto bytes = AsBytes(contents[i]);
    const size_t cut = bytes.size() / 3;  // in pieces
    writer->Write(tensors[i].name, bytes.subspan(cut), static_cast<int64_t>(cut));
    writer->Write(tensors[i].name, bytes.first(cut));
  }
  writer->Commit();
  const auto file = SafetensorsFile::Open(folder / "f");
  RC_ASSERT(file->Tensors().size() == tensors.size());
  RC_ASSERT(file->Metadata().at("k") == "v\n\"");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Tensor tensor = file->Get(tensors[i].name);
    RC_ASSERT(tensor.dtype() == tensors[i].dtype);
    RC_ASSERT(tensor.shape() == tensors[i].shape);
    RC_ASSERT(AsText(tensor.bytes()) == contents[i]);
  }
}

TEST(SafetensorsWriter, TakesBytesFromManyThreads) {
  const TempFolder folder;
  constexpr int64_t kBytes = 1 << 20;
  auto writer = SafetensorsWriter::ToFile(
      folder / "f", {{"a", DType::kU8, Shape{kBytes}}, {"b", DType::kU8, Shape{kBytes}}});
  ParallelFor(0, kBytes, 4096, [&](int64_t first, int64_t last) {
    const std::string piece(static_cast<size_t>(last - first), static_cast<char>(first >> 12));
    writer->Write("a", AsBytes(piece), first);
    writer->Write("b", AsBytes(piece), first);
  });
  writer->Commit();
  const auto file = SafetensorsFile::Open(folder / "f");
  for (int64_t i = 0; i < kBytes; i += 1021) {
    const auto expected = static_cast<std::byte>(static_cast<uint8_t>(i >> 12));
    ASSERT_EQ(file->Get("a").bytes()[static_cast<size_t>(i)], expected);
    ASSERT_EQ(file->Get("b").bytes()[static_cast<size_t>(i)], expected);
  }
}

TEST(SafetensorsWriter, RefusesMistakesOfTheCaller) {
  const TempFolder folder;
  auto writer = SafetensorsWriter::ToFile(folder / "f", {{"a", DType::kU8, Shape{4}}});
  const auto internal = [](auto&& body) { return MessageOf(body, ErrorKind::kInternal); };
  EXPECT_THAT(internal([&] { writer->Write("b", {}); }), HasSubstr("not announced"));
  EXPECT_THAT(internal([&] { writer->Write("a", AsBytes("12345")); }), HasSubstr("0 + 5 of 4"));
  EXPECT_THAT(internal([&] { writer->Write("a", AsBytes("1"), 4); }), HasSubstr("4 + 1 of 4"));
  EXPECT_THAT(internal([&] { writer->Write("a", AsBytes("1"), -1); }), HasSubstr("-1 + 1"));
  EXPECT_THAT(internal([&] { writer->AddFile("x", ""); }), HasSubstr("single file"));
  writer->Write("a", AsBytes("123"));
  EXPECT_THAT(internal([&] { writer->Commit(); }), HasSubstr("3 of 4 bytes"));
  writer.reset();
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TempFolder folder;
  const auto refuse = [&](std::vector<TensorSpec> tensors) {
    return MessageOf([&] { SafetensorsWriter::ToFile(folder / "f", std::move(tensors)); });
  };
  EXPECT_THAT(refuse({{"a", DType::kU8, Shape{1}}, {"a", DType::kU8, Shape{1}}}),
              HasSubstr("given twice"));
  EXPECT_THAT(refuse({{"__metadata__", DType::kU8, Shape{1}}}), HasSubstr("reserved"));
  EXPECT_THAT(refuse({{"a", DType::kF4, Shape{3}}}), HasSubstr("whole bytes"));
  EXPECT_THAT(refuse({{"a", DType::kUnknown, Shape{8}}}), HasSubstr("whole bytes"));
  EXPECT_THAT(refuse({{"\xff", DType::kU8, Shape{8}}}), HasSubstr("UTF-8"));
  std::vector<TensorSpec> huge;
  for (int i = 0; i < 16; ++i) {
    huge.push_back({std::to_string(i), DType::kU8, Shape{int64_t{1} << 59}});
  }
  EXPECT_THAT(refuse(std::move(huge)), HasSubstr("larger than a file"));
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(SafetensorsWriter, ChecksForRoomBeforeTheWork) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf([&] {
                SafetensorsWriter::ToFolder(
                    folder / "m",
                    {{"a.safetensors", {{"a", DType::kU8, Shape{8}}}, {}},
                     {"b.safetensors", {{"b", DType::kU8, Shape{int64_t{1} << 59}}}, {}}});
              }),
              HasSubstr("no room"));
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(PlanShards, FillsEachUpToTheLimit) {
  std::vector<TensorSpec> tensors;
  for (const auto& [name, size] : std::vector<std::pair<std::string, int64_t>>{
           {"a", 40}, {"b", 60}, {"c", 1}, {"d", 500}, {"e", 99}, {"f", 2}}) {
    tensors.push_back({name, DType::kU8, Shape{size}});
  }
  std::vector<std::string> found;
  for (const ShardPlan& shard : PlanShards(tensors, 100)) {
    found.push_back(shard.file_name + ":");
    for (const TensorSpec& tensor : shard.tensors) found.back() += tensor.name;
  }
  EXPECT_THAT(
      found,
      ElementsAre("model-00001-of-00005.safetensors:ab", "model-00002-of-00005.safetensors:c",
                  "model-00003-of-00005.safetensors:d", "model-00004-of-00005.safetensors:e",
                  "model-00005-of-00005.safetensors:f"));
  EXPECT_EQ(PlanShards(tensors, 10000).front().file_name, "model.safetensors");
  EXPECT_EQ(PlanShards({}, 1).size(), 1u);
  MessageOf([&] { PlanShards(tensors, 0); }, ErrorKind::kUsage);
}

// A folder that another model can be opened from.
std::unique_ptr<SafetensorsWriter> WriterOfTwoShards(const std::string& path) {
  IndexOptions index;
  index.total_parameters = 7;
  return SafetensorsWriter::ToFolder(
      path,
      PlanShards({{"x.weight", DType::kBF16, Shape{2, 3}}, {"y", DType::kU8, Shape{5}}}, 12,
                 {{"format", "pt"}}),
      index);
}

TEST(SafetensorsWriter, WritesAFolderThatOpensWithoutNotes) {
  const TempFolder folder;
  auto writer = WriterOfTwoShards(folder / "m");
  writer->Write("y", AsBytes("12345"));
  writer->Write("x.weight", AsBytes("abcdefghijkl"));
  writer->AddFile("config.json", "{\"a\": 1}");
  writer->CopyFile("notes.txt", folder.Write("source.txt", "copied"));
  EXPECT_THAT(MessageOf([&] { writer->AddFile("config.json", ""); }, ErrorKind::kInternal),
              HasSubstr("twice"));
  EXPECT_THAT(MessageOf([&] { writer->AddFile("../x", ""); }, ErrorKind::kInternal),
              HasSubstr("plain file name"));
  writer->Commit();
  EXPECT_THAT(
      TempFolder::NamesIn(folder / "m"),
      ElementsAre("config.json", "model-00001-of-00002.safetensors",
                  "model-00002-of-00002.safetensors", "model.safetensors.index.json", "notes.txt"));
  EXPECT_EQ(ReadFile(folder / "m/notes.txt"), "copied");
  const Model model = Model::Open(folder / "m");
  EXPECT_THAT(model.Notes(), IsEmpty());
  EXPECT_EQ(AsText(model.Load("x.weight").bytes()), "abcdefghijkl");
  EXPECT_EQ(AsText(model.Load("y").bytes()), "12345");
  EXPECT_EQ(model.FileOf("y").Metadata().at("format"), "pt");
  const auto index = nlohmann::json::parse(ReadFile(folder / "m/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], 17);
  EXPECT_EQ(index["metadata"]["total_parameters"], 7);
}

TEST(SafetensorsWriter, KeepsAGivenIndexMetadata) {
  const TempFolder folder;
  IndexOptions index;
  index.always = true;
  index.metadata = {{"total_size", 12345}, {"note", "kept"}};
  SafetensorsWriter::ToFolder(folder / "m", PlanShards({}, 1), index)->Commit();
  EXPECT_EQ(ReadFile(folder / "m/model.safetensors.index.json"),
            "{\n  \"metadata\": {\n    \"note\": \"kept\",\n    \"total_size\": 12345\n  },\n"
            "  \"weight_map\": {}\n}");
}

TEST(SafetensorsWriter, CopiesEveryCorpusFileUnchangedInContent) {
  const TempFolder folder;
  for (const std::string& name : test::FixtureFiles("files/safetensors", "ok-")) {
    const auto source = SafetensorsFile::Open(test::TestDataPath(name));
    Copy(*source, folder / "copy", {TensorOrder::kAsGiven, 64});
    ExpectSameContent(*source, *SafetensorsFile::Open(folder / "copy"));
  }
}

// Runs `body` in a child that is killed when it has begun to write.
void KillWhileWriting(const std::function<std::unique_ptr<SafetensorsWriter>()>& make) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      auto writer = make();
      writer->Write("y", AsBytes("123"));
      if (write(ready[1], "r", 1) == 1) pause();
    } catch (const std::exception&) {
    }
    _exit(1);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(SafetensorsWriter, AKillLeavesOnlyWhatTheNextRunRemoves) {
  const TempFolder folder;
  KillWhileWriting([&] { return WriterOfTwoShards(folder / "m"); });
  KillWhileWriting([&] {
    return SafetensorsWriter::ToFile(folder / "f", {{"y", DType::kU8, Shape{5}}});
  });
  EXPECT_FALSE(fs::exists(folder / "m"));
  EXPECT_FALSE(fs::exists(folder / "f"));
  for (const std::string& name : folder.Names()) {
    EXPECT_TRUE(name.starts_with(kTemporaryPrefix)) << name;
  }
  SafetensorsWriter::ToFile(folder / "f", {})->Commit();
  EXPECT_THAT(folder.Names(), ElementsAre("f"));
}

}  // namespace
}  // namespace assay
