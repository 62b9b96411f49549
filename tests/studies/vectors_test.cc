#include "assay/studies/vectors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "assay/base/error.h"
#include "assay/checkpoint/container.h"
#include "assay/formats/catalogue.h"
#include "tests/support/run_cli.h"

namespace assay {
namespace {

using ::testing::HasSubstr;

/// The first and the last format of every family that encodes.
std::vector<std::string> EncodingFormats() {
  std::vector<std::string> names;
  for (const FormatFamily* family : FormatCatalogue()) {
    std::vector<std::string> own = family->names();
    std::erase_if(own, [](const std::string& name) { return !Format::Parse(name)->CanEncode(); });
    if (own.empty()) continue;
    names.push_back(own.front());
    if (own.size() > 1) names.push_back(own.back());
  }
  return names;
}

TEST(Vectors, RowsAreTheSameEveryTimeAndCoverTheNamedKinds) {
  const auto rows = MakeVectorRows(DType::kBF16, 256, 1);
  const auto again = MakeVectorRows(DType::kBF16, 256, 1);
  const auto other = MakeVectorRows(DType::kBF16, 256, 2);
  ASSERT_EQ(rows.size(), again.size());
  std::set<std::string> kinds;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].values, again[i].values) << rows[i].reason;
    kinds.insert(rows[i].reason.substr(0, rows[i].reason.find(':')));
  }
  EXPECT_NE(rows[0].values, other[0].values);
  for (const char* kind : {"random", "ties", "zero", "constant", "outlier", "subnormal"}) {
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  }
}

TEST(Vectors, EveryFormatsFilesHoldWhatItsCodecGives) {
  const TemporaryFolder folder;
  int num_formats = 0;
  for (const std::string& name : EncodingFormats()) {
    VectorsOptions options;
    options.format = Format::Parse(name);
    options.output = folder.Path(name);
    std::ranges::replace(options.output, ':', '_');
    const VectorsReport report = WriteVectors(options);
    const auto file = OpenContainer(options.output + "/vectors.safetensors");
    const Tensor input = file->Get("input");
    ASSERT_GT(input.shape()[0], 5) << name;
    const MatrixView view(input.view(), input.shape()[0], input.shape()[1]);
    const EncodedMatrix encoded = options.format->Encode(view, {.tensor_name = "input"});
    for (const Plane& plane : encoded.planes) {
      const Tensor stored = file->Get("plane." + plane.name);
      EXPECT_EQ(stored.shape(), plane.tensor.shape()) << name << " " << plane.name;
      EXPECT_TRUE(std::ranges::equal(stored.bytes(), plane.tensor.bytes()))
          << name << " " << plane.name;
    }
    if (options.format->Lossless() && encoded.dtype == input.dtype()) {
      EXPECT_TRUE(std::ranges::equal(file->Get("decoded").bytes(), input.bytes())) << name;
    }
    for (const std::string& tensor : {std::string("input"), std::string("decoded_f32")}) {
      const auto npy = OpenContainer(options.output + "/" + tensor + ".npy");
      EXPECT_TRUE(std::ranges::equal(npy->Load(0).bytes(), file->Get(tensor).bytes()))
          << name << " " << tensor;
    }
    EXPECT_THAT(ReadText(options.output + "/README.md"), HasSubstr("| 0 | random: N(0, 1) |"));
    std::filesystem::remove_all(options.output);
    ++num_formats;
  }
  EXPECT_GE(num_formats, 8);
}

TEST(Vectors, RefusesWhatCannotBe) {
  const TemporaryFolder folder;
  VectorsOptions options;
  options.format = Format::Parse("affine4g64");
  options.output = folder.Path("out");
  options.cols = 100;
  EXPECT_THROW(WriteVectors(options), Error);
  options.cols = std::nullopt;
  options.dtype = DType::kU8;
  EXPECT_THROW(WriteVectors(options), Error);
  options.dtype = DType::kF16;
  WriteVectors(options);
  EXPECT_THROW(WriteVectors(options), Error);  // exists now
}

TEST(VectorsCommand, SaysWhatItWrote) {
  const TemporaryFolder folder;
  const CliResult result =
      RunCli({"vectors", "--format", "mxfp4", "-o", folder.Path("v"), "--dtype", "f32"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("scales"));
  EXPECT_EQ(RunCli({"vectors", "--format", "mxfp4", "-o", folder.Path("v")}).exit_code, 2);
}

}  // namespace
}  // namespace assay
