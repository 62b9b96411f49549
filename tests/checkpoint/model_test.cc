#include "assay/checkpoint/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "assay/base/text.h"
#include "assay/checkpoint/shard_index.h"
#include "assay/checkpoint/writer.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::MessageOf;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Writes a file whose tensors hold bytes 0, 1, 2, … each.
void WriteModel(const std::string& path, const std::vector<TensorSpec>& tensors,
                const std::map<std::string, std::string>& metadata = {}) {
  auto writer = SafetensorsWriter::ToFile(path, tensors, metadata);
  for (const TensorSpec& tensor : tensors) {
    std::string bytes(static_cast<size_t>(*tensor.shape.CheckedNumBytes(tensor.dtype)), '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i & 0x3F);
    writer->Write(tensor.name, AsBytes(bytes));
  }
  writer->Commit();
}

std::vector<std::string> WeightNames(const Model& model) {
  std::vector<std::string> names;
  for (const Weight& weight : model.Weights()) names.push_back(weight.name());
  return names;
}

// Puts a good two-shard model into `blobs` and links to it into `snapshot`, as the Hugging Face
// cache does.
void MakeSnapshot(const TempFolder& folder) {
  fs::create_directories(folder / "blobs");
  fs::create_directories(folder / "snapshots/abc");
  const std::string source = test::TestDataPath("files/index/ok-two-shards");
  for (const std::string& name : TempFolder::NamesIn(source)) {
    fs::copy_file(source + "/" + name, folder / ("blobs/hash-" + name));
    fs::create_symlink("../../blobs/hash-" + name, folder / ("snapshots/abc/" + name));
  }
}

TEST(Model, ASnapshotOfLinksOpensLikeAFolder) {
  const TempFolder folder;
  MakeSnapshot(folder);
  const Model model = Model::Open(folder / "snapshots/abc");
  EXPECT_THAT(model.Notes(), IsEmpty());
  EXPECT_EQ(model.Tensors().size(), 3u);
  EXPECT_EQ(model.Load("model.norm.weight").num_bytes(), 12);
  EXPECT_NE(model.Config("config.json"), nullptr);
  // The folder itself may be a link too.
  fs::create_directory_symlink("snapshots/abc", folder / "main");
  EXPECT_EQ(Model::Open(folder / "main").Tensors().size(), 3u);
}

TEST(Model, ADanglingLinkIsNamedWithItsTarget) {
  const TempFolder folder;
  MakeSnapshot(folder);
  fs::remove(folder / "blobs/hash-model-00002-of-00002.safetensors");
  EXPECT_THAT(MessageOf([&] { Model::Open(folder / "snapshots/abc"); }),
              AllOf(HasSubstr("snapshots/abc/model-00002-of-00002.safetensors"),
                    HasSubstr("../../blobs/hash-model-00002-of-00002.safetensors"),
                    HasSubstr("does not exist")));
}

TEST(Model, ALinkToNoRegularFileIsRefused) {
  const TempFolder folder;
  MakeSnapshot(folder);
  const std::string blob = folder / "blobs/hash-model-00002-of-00002.safetensors";
  fs::remove(blob);
  ASSERT_EQ(mkfifo(blob.c_str(), 0600), 0);
  EXPECT_THAT(MessageOf([&] { Model::Open(folder / "snapshots/abc"); }), HasSubstr("a FIFO"));
  fs::remove(blob);
  fs::create_directory(blob);
  EXPECT_THAT(MessageOf([&] { Model::Open(folder / "snapshots/abc"); }), HasSubstr("a folder"));
  fs::remove(blob);
  fs::create_symlink("/dev/null", blob);
  EXPECT_THAT(MessageOf([&] { Model::Open(folder / "snapshots/abc"); }), HasSubstr("a device"));
}

TEST(Model, AnIndexOpensByItsPath) {
  const Model model =
      Model::Open(test::TestDataPath("files/index/ok-two-shards/model.safetensors.index.json"));
  EXPECT_EQ(model.Tensors().size(), 3u);
  EXPECT_EQ(model.Directory(), test::TestDataPath("files/index/ok-two-shards"));
}

TEST(Model, SeveralIndicesMustBeChosenFrom) {
  const TempFolder folder;
  WriteModel(folder / "a.safetensors", {{"w", DType::kF32, Shape{1, 2}}});
  const std::string index = R"({"weight_map": {"w": "a.safetensors"}})";
  folder.Write("a.safetensors.index.json", index);
  EXPECT_EQ(Model::Open(folder.path()).Tensors().size(), 1u);
  folder.Write("b.safetensors.index.json", index);
  EXPECT_THAT(MessageOf([&] { Model::Open(folder.path()); }), HasSubstr("several indices"));
  EXPECT_EQ(Model::Open(folder / "b.safetensors.index.json").Tensors().size(), 1u);
  folder.Write("model.safetensors.index.json", index);
  EXPECT_EQ(Model::Open(folder.path()).Tensors().size(), 1u);
}

TEST(Model, FilesWithoutAnIndexAreReadTogether) {
  const TempFolder folder;
  WriteModel(folder / "b.safetensors", {{"b", DType::kF32, Shape{1, 2}}});
  WriteModel(folder / "a.safetensors", {{"a", DType::kF32, Shape{1, 2}}});
  const Model model = Model::Open(folder.path());
  EXPECT_THAT(model.Notes(), ElementsAre(HasSubstr("no index; all 2 files")));
  EXPECT_THAT(WeightNames(model), ElementsAre("a", "b"));
  WriteModel(folder / "c.safetensors", {{"a", DType::kF32, Shape{1, 2}}});
  EXPECT_THAT(MessageOf([&] { Model::Open(folder.path()); }),
              AllOf(HasSubstr("duplicate tensor \"a\""), HasSubstr("a.safetensors"),
                    HasSubstr("c.safetensors")));
}

TEST(Model, AFolderWithoutTensorsIsRefused) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf([&] { Model::Open(folder.path()); }), HasSubstr("no *.safetensors"));
  EXPECT_THAT(MessageOf([&] { Model::Open(folder / "none"); }), HasSubstr("No such file"));
}

TEST(Model, PlanesThatTheIndexListsForAPlainWeightAreNoted) {
  const TempFolder folder;
  WriteModel(folder / "m.safetensors", {{"o.weight", DType::kBF16, Shape{2, 96}}});
  folder.Write("model.safetensors.index.json",
               R"({"weight_map": {"o.tq_packed": "m.safetensors", "o.tq_scales":
               "m.safetensors", "o.tq_signs": "m.safetensors"}})");
  const Model model = Model::Open(folder.path());
  EXPECT_THAT(model.Notes(),
              ElementsAre(AllOf(HasSubstr("planes of weights that the file holds plain"),
                                HasSubstr("o.tq_packed"), HasSubstr("o.tq_signs")),
                          HasSubstr("not in the index")));
  EXPECT_THAT(WeightNames(model), ElementsAre("o.weight"));
}

TEST(Model, PlainMatricesAndStacksAreWeights) {
  const TempFolder folder;
  WriteModel(folder / "m.safetensors", {{"bias", DType::kF32, Shape{4}},
                                        {"conv", DType::kF32, Shape{1, 2, 3, 4}},
                                        {"experts", DType::kF32, Shape{3, 2, 4}},
                                        {"ids", DType::kI64, Shape{2, 2}},
                                        {"w", DType::kBF16, Shape{2, 4}}});
  const Model model = Model::Open(folder / "m.safetensors");
  EXPECT_EQ(model.Tensors().size(), 5u);
  ASSERT_THAT(WeightNames(model), ElementsAre("experts", "w"));
  const Weight& experts = model.Weights()[0];
  EXPECT_EQ(experts.stack(), 3);
  EXPECT_TRUE(experts.stacked());
  EXPECT_TRUE(experts.plain());
  EXPECT_EQ(experts.PlainShape(), (Shape{3, 2, 4}));
  EXPECT_EQ(experts.num_values(), 24);
  EXPECT_EQ(experts.num_bytes(), 96);
  EXPECT_EQ(experts.format()->Name(), "f32");
  std::vector<float> rows(4);
  experts.ReadRows(2, 1, 1, rows);
  std::vector<float> expected(24);
  std::memcpy(expected.data(), model.Load("experts").bytes().data(), 96);
  EXPECT_EQ(rows, std::vector<float>(expected.begin() + 20, expected.end()));
  MessageOf([&] { experts.Encoded(3); }, ErrorKind::kInternal);
  EXPECT_EQ(model.FindWeight("w")->dtype(), DType::kBF16);
  EXPECT_EQ(model.FindWeight("bias"), nullptr);
}

TEST(Model, WeightsOutliveTheModel) {
  const TempFolder folder;
  WriteModel(folder / "m.safetensors", {{"w", DType::kF32, Shape{2, 4}}});
  std::vector<Weight> weights;
  {
    const Model model = Model::Open(folder / "m.safetensors");
    weights = model.Weights();
  }
  std::vector<float> rows(8);
  weights[0].ReadRows(0, 0, 2, rows);
  EXPECT_EQ(weights[0].tensor_names(), std::vector<std::string>{"w"});
}

TEST(Model, AnArrayFileIsOneWeight) {
  const Model model = Model::Open(test::TestDataPath("files/npy/ok-fortran-2d.npy"));
  EXPECT_THAT(WeightNames(model), ElementsAre("ok-fortran-2d"));
  EXPECT_EQ(model.Weights()[0].rows(), 3);
}

TEST(Model, AFileIsRecognisedByContentWhenItsNameSaysNothing) {
  const TempFolder folder;
  fs::copy_file(test::TestDataPath("files/npy/ok-c-f4.npy"), folder / "array");
  EXPECT_EQ(Model::Open(folder / "array").Files()[0]->kind(), "npy");
  WriteModel(folder / "tensors", {{"w", DType::kF32, Shape{2, 4}}});
  EXPECT_EQ(Model::Open(folder / "tensors").Files()[0]->kind(), "safetensors");
}

TEST(Model, PlanesOfAnMlxFolderBecomeWeights) {
  const Model model = Model::Open(test::TestDataPath("mlx/model-affine-mixed"));
  const test::Fixture decoded("mlx/model-affine-mixed/decoded.safetensors");
  int num_encoded = 0;
  for (const Weight& weight : model.Weights()) {
    if (weight.plain()) continue;
    ++num_encoded;
    ASSERT_TRUE(weight.name().ends_with(".weight")) << weight.name();
    const Tensor expected = decoded.Get(weight.name().substr(0, weight.name().rfind('.')));
    ASSERT_EQ(weight.PlainShape(), expected.shape());
    const MatrixView matrix(expected.view(), weight.stack() * weight.rows(), weight.cols());
    const auto matrix_size = static_cast<size_t>(weight.rows() * weight.cols());
    std::vector<float> found(matrix_size);
    std::vector<float> wanted(matrix_size);
    for (int64_t i = 0; i < weight.stack(); ++i) {
      weight.ReadRows(i, 0, weight.rows(), found);
      matrix.ReadRows(i * weight.rows(), weight.rows(), wanted);
      EXPECT_EQ(found, wanted) << weight.name();
    }
  }
  EXPECT_EQ(num_encoded, 14);
}

TEST(Model, ConfigsComeFromTheFolderOrTheMetadata) {
  const TempFolder folder;
  WriteModel(folder / "model.safetensors", {{"w", DType::kF32, Shape{2, 4}}},
             {{"quantization", "{\"bits\": 3}"},
              {"quantize_config.json", "{\"bits\": 5}"},
              {"quantization_config", "int8"}});
  {
    const Model file = Model::Open(folder / "model.safetensors");
    EXPECT_EQ(file.Config("config.json"), nullptr);
    EXPECT_EQ(file.ConfigKey("quantization")->at("bits"), 3);
    EXPECT_EQ(file.Config("quantize_config.json")->at("bits"), 5);
    EXPECT_EQ(file.ConfigKey("quantization_config"), nullptr);  // a word of another tool
    EXPECT_EQ(file.ConfigKey("absent"), nullptr);
    EXPECT_EQ(file.Directory(), "");
  }
  folder.Write("config.json", R"({"quantization": {"bits": 4}})");
  const Model model = Model::Open(folder.path());
  EXPECT_EQ(model.ConfigKey("quantization")->at("bits"), 4);
  EXPECT_EQ(model.Config("config.json"), model.Config("config.json"));  // parsed once
  folder.Write("config.json", "{");
  const Model broken = Model::Open(folder.path());
  EXPECT_THAT(MessageOf([&] { broken.ConfigKey("quantization"); }),
              AllOf(HasSubstr("config.json"), HasSubstr("not valid JSON")));
}

TEST(Model, AFileCutWhileReadEndsInAnError) {
  const TempFolder folder;
  WriteModel(folder / "m.safetensors", {{"w", DType::kF32, Shape{100, 1000}}});
  const Model model = Model::Open(folder / "m.safetensors");
  const Weight weight = model.Weights()[0];
  std::vector<float> rows(100'000);
  weight.ReadRows(0, 0, 100, rows);
  fs::resize_file(folder / "m.safetensors", 100'000);
  EXPECT_THAT(MessageOf([&] { weight.ReadRows(0, 0, 100, rows); }), HasSubstr("became shorter"));
  MessageOf([&] { model.Verify(); });
}

TEST(ShardIndex, ReadsTotalSizeFromWhateverWriters) {
  const auto total_size = [](const std::string& text) {
    return ParseShardIndex("{\"metadata\": {\"total_size\": " + text + "}, \"weight_map\": {}}",
                           "f");
  };
  EXPECT_EQ(total_size("17").total_size, 17u);
  EXPECT_EQ(total_size("17.0").total_size, 17u);
  for (const char* text : {"-1", "\"17\"", "null", "1e300", "[]"}) {
    const ShardIndex index = total_size(text);
    EXPECT_EQ(index.total_size, std::nullopt) << text;
    EXPECT_THAT(index.notes.back(), HasSubstr("total_size")) << text;
  }
  EXPECT_THAT(ParseShardIndex("{\"metadata\": 1, \"weight_map\": {}}", "f").notes.back(),
              HasSubstr("metadata is no object"));
}

TEST(ShardIndex, ShardNamesCannotLeaveTheFolder) {
  for (const char* name : {"model-00001-of-00002.safetensors", "a", "...", "..a", "~", "模型"}) {
    EXPECT_EQ(WhyNotShardName(name), std::nullopt) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../a"), std::string("/a"),
        std::string("a/b"), std::string("a\\b"), std::string("C:a"), std::string("a\nb"),
        std::string("a\0b", 3), std::string("a\x7f")}) {
    EXPECT_NE(WhyNotShardName(name), std::nullopt) << Quoted(name);
  }
}

}  // namespace
}  // namespace assay
