// Checkpoints as the tools themselves wrote them: recognised through config and names, decoded to
// the tools' own bits.

#include <gtest/gtest.h>

#include <filesystem>

#include "assay/checkpoint/model.h"
#include "assay/formats/catalogue.h"
#include "tests/support/bits.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/memory_checkpoint.h"
#include "tests/support/paths.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

using test::DifferentValues;
using test::Fixture;
using test::MemoryCheckpoint;

struct Case {
  std::string folder;
  std::string format;
  std::string expected;  // tests/data path
  bool unsigned_zeros = false;
};

const Case kCases[] = {
    {"ct-nvfp4", "nvfp4:ct", ""},
    {"ct-nvfp4a16", "nvfp4:ct", ""},
    {"ct-mxfp4", "mxfp4", ""},
    {"ct-mxfp6", "mxfp6e2m3", ""},
    {"ct-mxfp8", "mxfp8", ""},
    {"ct-fp8-channel", "fp8-channel:bf16", ""},
    {"ct-fp8-tensor", "fp8-tensor:bf16", ""},
    {"ct-fp8-block", "fp8-block128:bf16", ""},
    {"modelopt-nvfp4", "nvfp4", "", true},
    {"modelopt-nvfp4-kvfp8", "nvfp4", "", true},
    {"modelopt-nvfp4-w4a16", "nvfp4", "", true},
    {"modelopt-mxfp4", "mxfp4", "", true},
    {"modelopt-mxfp8", "mxfp8", ""},
    {"modelopt-fp8", "fp8-tensor", ""},
    {"modelopt-fp8-channel", "fp8-channel", ""},
    {"modelopt-int4-awq", "modelopt-int4g128", ""},
    {"gpt-oss-mxfp4", "mxfp4", ""},
};

std::string PathOf(const std::string& relative) { return test::TestDataPath(relative); }

std::vector<std::byte> Decoded(const Weight& weight, int64_t index, DType dtype) {
  const EncodedMatrix encoded = weight.Encoded(index);
  std::vector<std::byte> out(static_cast<size_t>(encoded.rows * encoded.cols * BitsOf(dtype) / 8));
  encoded.format->DecodeRowsTo(encoded, 0, encoded.rows, dtype, out);
  return out;
}

/// Compares every tensor of `expected`, whose names `name_of` turns into those of weights.
void ExpectDecodes(const Model& model, const Fixture& expected, const std::string& format,
                   test::Zeros zeros, const std::function<std::string(std::string)>& name_of) {
  int64_t encoded = 0;
  for (const Weight& weight : model.Weights()) encoded += !weight.plain();
  EXPECT_EQ(encoded, static_cast<int64_t>(expected.Names().size()));
  EXPECT_EQ(model.Notes(), std::vector<std::string>());
  for (const std::string& name : expected.Names()) {
    SCOPED_TRACE(name);
    const Weight* weight = model.FindWeight(name_of(name));
    ASSERT_NE(weight, nullptr);
    if (!format.empty()) {
      EXPECT_EQ(weight->format()->Name(), format);
    }
    const Tensor values = expected.Get(name);
    EXPECT_EQ(weight->PlainShape(), values.shape());
    for (int64_t m = 0; m < weight->stack(); ++m) {
      EXPECT_EQ(DifferentValues(values.dtype(), Decoded(*weight, m, values.dtype()),
                                test::MatrixAt(values, m).bytes(), zeros),
                0);
    }
  }
}

TEST(SmallFloatCheckpoints, WithoutAConfigNothingIsGuessed) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.folder);
    const std::string folder = "microscaling/checkpoints/" + c.folder;
    const Model model = Model::Open(PathOf(folder) + "/model.safetensors");
    for (const Weight& weight : model.Weights()) EXPECT_TRUE(weight.plain()) << weight.name();
  }
}

/// A copy of a fixture folder without the expected values, which a folder's reader would read too.
void CopyModel(const std::string& folder, const test::TempFolder& to) {
  for (const auto& entry : std::filesystem::directory_iterator(PathOf(folder))) {
    const std::string name = entry.path().filename().string();
    if (name == "expected.safetensors" || name == "decoded.safetensors") continue;
    std::filesystem::copy_file(entry.path(), to / name);
  }
}

TEST(SmallFloatCheckpoints, DecodeToTheirProducersBits) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.folder);
    const std::string folder = "microscaling/checkpoints/" + c.folder;
    const test::TempFolder copy;
    CopyModel(folder, copy);
    const Model model = Model::Open(copy.path());
    const Fixture expected(folder + "/expected.safetensors");
    ExpectDecodes(model, expected, c.format,
                  c.unsigned_zeros ? test::Zeros::kUnsigned : test::Zeros::kSigned,
                  [](const std::string& name) { return name; });
    EXPECT_TRUE(model.WeightNotes().empty());
  }
}

TEST(SmallFloatCheckpoints, OriginalGptOssFilesHoldTheSameWeights) {
  const test::TempFolder copy;
  CopyModel("microscaling/checkpoints/gpt-oss-original", copy);
  const Fixture expected("microscaling/checkpoints/gpt-oss-mxfp4/expected.safetensors");
  ExpectDecodes(Model::Open(copy.path()), expected, "mxfp4", test::Zeros::kSigned,
                [](const std::string& name) {
                  return name.find("gate_up") != name.npos ? "block.0.mlp.mlp1_weight"
                                                           : "block.0.mlp.mlp2_weight";
                });
}

TEST(SmallFloatCheckpoints, MlxFoldersDecodeToTheBitsOfMlx) {
  for (const std::string folder :
       {"mlx/model-mxfp4", "mlx/model-nvfp4", "mlx/model-nvfp4-experts"}) {
    SCOPED_TRACE(folder);
    const test::TempFolder copy;
    CopyModel(folder, copy);
    ExpectDecodes(Model::Open(copy.path()), Fixture(folder + "/decoded.safetensors"), "",
                  test::Zeros::kSigned, [](const std::string& name) { return name + ".weight"; });
  }
}

}  // namespace
}  // namespace assay
