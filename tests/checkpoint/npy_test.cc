#include "assay/checkpoint/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <filesystem>

#include "assay/base/text.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::MessageOf;
using test::TempFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string FileOf(const std::string& header, size_t num_data_bytes) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(num_data_bytes, '\x07');
}

std::string NpyRefusal(const std::string& header, size_t num_data_bytes = 0) {
  const std::string file = FileOf(header, num_data_bytes);
  return MessageOf([&] { ReadNpyHeader(AsBytes(file), "f"); });
}

TEST(Npy, EveryRuleHasItsOwnMessage) {
  const std::string rest = "'fortran_order': False, 'shape': (2,)}";
  EXPECT_THAT(NpyRefusal("[]"), HasSubstr("expected a dictionary"));
  EXPECT_THAT(NpyRefusal("{1: 2}"), HasSubstr("expected a key in quotes"));
  EXPECT_THAT(NpyRefusal("{'descr"), HasSubstr("does not end"));
  EXPECT_THAT(NpyRefusal("{'a\\'': 1}"), HasSubstr("escapes are not read"));
  EXPECT_THAT(NpyRefusal("{'descr' '<f4'}"), HasSubstr("expected ':'"));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4' 'x': 1}"), HasSubstr("expected ',' or '}'"));
  EXPECT_THAT(NpyRefusal("{'x': 1}"), HasSubstr("unknown key \"x\""));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4', 'descr': '<f4'}"), HasSubstr("duplicate key \"descr\""));
  EXPECT_THAT(NpyRefusal("{" + rest), HasSubstr("key 'descr' is missing"));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4', 'shape': ()}"), HasSubstr("'fortran_order' is missing"));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4', 'fortran_order': True}"),
              HasSubstr("key 'shape' is missing"));
  EXPECT_THAT(NpyRefusal("{'descr': [('a', '<f4')], " + rest), HasSubstr("structured types"));
  EXPECT_THAT(NpyRefusal("{'descr': ('<f4', 2), " + rest), HasSubstr("sub-array"));
  EXPECT_THAT(NpyRefusal("{'descr': '>f4', " + rest),
              HasSubstr("\">f4\" is not read (big-endian)"));
  EXPECT_THAT(NpyRefusal("{'descr': '<V2', " + rest), HasSubstr("safetensors keeps it"));
  EXPECT_THAT(NpyRefusal("{'fortran_order': 1}"), HasSubstr("expected True or False"));
  EXPECT_THAT(NpyRefusal("{'shape': [2]}"), HasSubstr("expected a tuple"));
  EXPECT_THAT(NpyRefusal("{'shape': (2)}"), HasSubstr("(2) is an integer, not a tuple"));
  EXPECT_THAT(NpyRefusal("{'shape': (2 3)}"), HasSubstr("expected ',' or ')'"));
  EXPECT_THAT(NpyRefusal("{'shape': (-2,)}"), HasSubstr("negative dimension"));
  EXPECT_THAT(NpyRefusal("{'shape': (02,)}"), HasSubstr("leading zero"));
  EXPECT_THAT(NpyRefusal("{'shape': (x,)}"), HasSubstr("expected an integer"));
  EXPECT_THAT(NpyRefusal("{'shape': (9223372036854775808,)}"), HasSubstr("too large"));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4', " + rest + " x"),
              HasSubstr("text after the dictionary"));
  EXPECT_THAT(NpyRefusal("{'descr': '<f4', " + rest, 7), HasSubstr("takes 8 bytes, found 7"));
  EXPECT_THAT(
      NpyRefusal("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904,)}"),
      HasSubstr("overflows"));
}

TEST(Npy, EveryProperPrefixOfAGoodFileIsRefused) {
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(test::TestDataPath("files/npy"))) {
    if (!entry.path().filename().string().starts_with("ok-")) continue;
    const std::string file = test::ReadFile(entry.path().string());
    ReadNpyHeader(AsBytes(file), "f");
    ++num_files;
    for (size_t length = 0; length < file.size(); ++length) {
      const std::string prefix = file.substr(0, length);
      EXPECT_NE(MessageOf([&] { ReadNpyHeader(AsBytes(prefix), "f"); }), "") << entry.path();
    }
  }
  EXPECT_EQ(num_files, 29);
}

RC_GTEST_PROP(Npy, FortranOrderIsTurnedIntoCOrder, ()) {
  const auto rank = *rc::gen::inRange<size_t>(0, 5);
  std::vector<int64_t> dims(rank);
  for (int64_t& dim : dims) dim = *rc::gen::inRange<int64_t>(0, rank == 2 ? 150 : 7);
  const Shape shape(dims);
  const auto count = static_cast<size_t>(shape.NumElements());
  std::vector<uint32_t> stored(count);
  for (size_t i = 0; i < count; ++i) stored[i] = static_cast<uint32_t>(i);
  const Tensor tensor = FromFortranOrder({DType::kU32, shape, std::as_bytes(std::span(stored))});
  std::vector<uint32_t> found(count);
  if (count > 0) std::memcpy(found.data(), tensor.bytes().data(), count * sizeof(uint32_t));
  for (size_t c_index = 0; c_index < count; ++c_index) {
    // The index vector of c_index, last axis fastest, put back together first axis fastest.
    size_t rest = c_index;
    std::vector<size_t> index(rank);
    for (size_t axis = rank; axis-- > 0;) {
      index[axis] = rest % static_cast<size_t>(dims[axis]);
      rest /= static_cast<size_t>(dims[axis]);
    }
    size_t f_index = 0;
    for (size_t axis = rank; axis-- > 0;) {
      f_index = f_index * static_cast<size_t>(dims[axis]) + index[axis];
    }
    RC_ASSERT(found[c_index] == f_index);
  }
}

TEST(Npy, TheTensorIsNamedByTheFile) {
  const auto file = NpyFile::Open(test::TestDataPath("files/npy/ok-c-f4.npy"));
  ASSERT_EQ(file->Tensors().size(), 1u);
  EXPECT_EQ(file->Tensors()[0].name, "ok-c-f4");
  EXPECT_EQ(file->kind(), "npy");
}

TEST(Npy, AFortranFileCutWhileMappedEndsInAnError) {
  const TempFolder folder;
  const std::string header = "{'descr': '|u1', 'fortran_order': True, 'shape': (300, 300)}";
  const auto file = NpyFile::Open(folder.Write("f.npy", FileOf(header, 90'000)));
  fs::resize_file(folder / "f.npy", 20'000);
  EXPECT_THAT(MessageOf([&] { file->Load(); }), HasSubstr("became shorter"));
}

TEST(Npy, TrailingBytesAreNoted) {
  const TempFolder folder;
  const auto file = NpyFile::Open(
      folder.Write("f.npy", FileOf("{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}", 5)));
  EXPECT_THAT(file->Notes(), ElementsAre(HasSubstr("2 trailing bytes")));
}

}  // namespace
}  // namespace assay
