#include "assay/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "assay/base/text.h"
#include "assay/checkpoint/safetensors_header.h"
#include "tests/support/errors.h"
#include "tests/support/fixture.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::MessageOf;
using test::TempFolder;
using ::testing::HasSubstr;

// A file with this header (padded as writers do) and `num_data_bytes` zeros.
std::string SafetensorsOf(std::string header, size_t num_data_bytes) {
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i & 0xFF);
  return file + header + std::string(num_data_bytes, '\0');
}

std::string SafetensorsRefusal(const std::string& file) {
  return MessageOf([&] { ReadSafetensorsHeader(AsBytes(file), "f"); });
}

struct Rule {
  std::string header;
  size_t num_data_bytes;
  std::string message;  // whole
};

// One file for each rule, and what it says, to the letter.
std::vector<Rule> Rules() {
  const auto entry = [](const std::string& fields) { return "{\"w\":{" + fields + "}}"; };
  const std::string f32 = R"("dtype":"F32",)";
  const std::string shape = R"("shape":[2],)";
  const std::string offsets = R"("data_offsets":[0,8])";
  return {
      {"[]", 0, "f: header: expected it to start with '{' (0x7B), found 0x5B"},
      {"{\"\xff\"}", 0, "f: header: not valid UTF-8 at byte 10"},
      {std::string("{}\0", 3), 0,
       "f: header: NUL at byte 10; padding must be spaces, and JSON holds none"},
      {"{}\t", 0, "f: header: trailing 0x09 after the JSON object; padding must be spaces"},
      {"{} {}", 0, "f: header: trailing text after the JSON object, at header byte 3"},
      {"{\"w\"}", 0,
       "f: header: not valid JSON at byte 5: syntax error while parsing object separator - "
       "unexpected '}'; expected ':'"},
      {R"({"w":1})", 0,
       "f: tensor \"w\": entry: expected an object of dtype, shape and data_offsets, found 1"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "f: header: duplicate __metadata__"},
      {R"({"__metadata__":1})", 0, "f: header: __metadata__: expected an object, found 1"},
      {R"({"__metadata__":{"a":{}}})", 0,
       "f: header: __metadata__: \"a\": expected a string, found an object"},
      {R"({"__metadata__":{"a":"","\u0061":""}})", 0,
       "f: header: __metadata__: duplicate key \"a\""},
      {entry(shape + offsets), 8, "f: tensor \"w\": field \"dtype\" is missing"},
      {entry(f32 + offsets), 8, "f: tensor \"w\": field \"shape\" is missing"},
      {entry(f32 + R"("shape":[2])"), 8, "f: tensor \"w\": field \"data_offsets\" is missing"},
      {entry(f32 + f32 + shape + offsets), 8, "f: tensor \"w\": duplicate field \"dtype\""},
      {entry(f32 + shape + offsets + R"(,"x":1)"), 8,
       "f: tensor \"w\": unknown field \"x\"; expected dtype, shape and data_offsets"},
      {entry(R"("dtype":1)"), 0, "f: tensor \"w\": dtype: expected a string, found 1"},
      {entry(R"("dtype":"F31")"), 0,
       "f: tensor \"w\": dtype \"F31\" is not one of the format's (such as F32, BF16, F8_E4M3, "
       "U8)"},
      {entry(R"("shape":"2")"), 0,
       "f: tensor \"w\": shape: expected an array of integers, found the string \"2\""},
      {entry(R"("shape":[1,-0])"), 0,
       "f: tensor \"w\": shape[1]: expected an integer from 0 to 2^63 - 1, found -0"},
      {entry(R"("shape":[1e2])"), 0,
       "f: tensor \"w\": shape[0]: expected an integer from 0 to 2^63 - 1, found 1e2"},
      {entry(R"("shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])"), 0,
       "f: tensor \"w\": shape: the rank is above 32 dimensions"},
      {entry(R"("data_offsets":{})"), 0,
       "f: tensor \"w\": data_offsets: expected an array of 2 integers, found an object"},
      {entry(R"("data_offsets":[1])"), 0,
       "f: tensor \"w\": data_offsets: expected 2 offsets, found 1"},
      {entry(R"("data_offsets":[1,2,3])"), 0,
       "f: tensor \"w\": data_offsets: expected 2 offsets, found more"},
      {entry(R"("data_offsets":[0,9223372036854775808])"), 0,
       "f: tensor \"w\": data_offsets[1]: expected an integer from 0 to 2^63 - 1, found "
       "9223372036854775808, out of range"},
      {R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("\u0077":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
       2, "f: duplicate tensor name \"w\""},
      {entry(f32 + shape + R"("data_offsets":[8,0])"), 8,
       "f: tensor \"w\": data_offsets: begin 8 is after end 0"},
      {entry(f32 + R"("shape":[4294967296,4294967296,0],"data_offsets":[0,0])"), 0,
       "f: tensor \"w\": F32 [4294967296, 4294967296, 0]: the number of elements overflows 64 "
       "bits"},
      {entry(f32 + R"("shape":[2305843009213693952],"data_offsets":[0,8])"), 8,
       "f: tensor \"w\": F32 [2305843009213693952]: the size in bits overflows 64 bits"},
      {entry(R"("dtype":"F4",)" + std::string(R"("shape":[3],"data_offsets":[0,1])")), 1,
       "f: tensor \"w\": F4 [3]: 12 bits are not a whole number of bytes"},
      {entry(f32 + shape + R"("data_offsets":[0,7])"), 7,
       "f: tensor \"w\": F32 [2] takes 8 bytes, but its data_offsets [0, 7] cover 7"},
      {entry(f32 + shape + offsets), 7,
       "f: tensor \"w\": data_offsets end past the file: at byte 64 + 8, but the file has 71 "
       "bytes; is the download complete?"},
      {entry(f32 + shape + R"("data_offsets":[1,9])"), 9,
       "f: tensor \"w\": a hole of 1 bytes before data_offsets begin 1"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "f: tensor \"b\": data_offsets [1, 3] overlap tensor \"a\", which ends at 2"},
      {entry(f32 + shape + offsets), 10,
       "f: 2 trailing bytes after the last tensor: expected a file of 72 bytes, found 74"},
  };
}

TEST(Safetensors, EveryRuleHasItsOwnMessage) {
  std::set<std::string> messages;
  for (const Rule& rule : Rules()) {
    EXPECT_EQ(SafetensorsRefusal(SafetensorsOf(rule.header, rule.num_data_bytes)), rule.message);
    EXPECT_TRUE(messages.insert(rule.message).second) << rule.message;
  }
}

TEST(Safetensors, EveryRuleOfTheLengthHasItsOwnMessage) {
  const auto with_length = [](uint64_t length, const std::string& rest) {
    std::string file(8, '\0');
    for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> 8 * i & 0xFF);
    return file + rest;
  };
  EXPECT_EQ(SafetensorsRefusal("1234567"), "f: too short: expected at least 8 bytes, found 7");
  EXPECT_EQ(SafetensorsRefusal(with_length(0, "{}")),
            "f: header: its length is 0, expected at least 2 (\"{}\")");
  EXPECT_EQ(SafetensorsRefusal(with_length(3, "{}")),
            "f: header: truncated: expected 3 bytes, found 2; is the download complete?");
  EXPECT_EQ(SafetensorsRefusal(with_length(100'000'001, "{}")),
            "f: header: its length of 100,000,001 bytes is above the limit of 100,000,000; is this "
            "safetensors?");
}

TEST(Safetensors, EveryProperPrefixOfAGoodFileIsRefused) {
  for (const std::string& name : test::FixtureFiles("files/safetensors", "ok-")) {
    const std::string file = test::ReadTestData(name);
    if (file.size() > 4096) continue;
    ReadSafetensorsHeader(AsBytes(file), "f");
    for (size_t length = 0; length < file.size(); ++length) {
      EXPECT_NE(SafetensorsRefusal(file.substr(0, length)), "") << name << " cut to " << length;
    }
  }
}

TEST(Safetensors, DepthOfForeignJsonDoesNotMatter) {
  constexpr size_t kLevels = 100'000;
  std::string objects;
  for (size_t i = 0; i < kLevels; ++i) objects += "{\"a\":";
  EXPECT_THAT(SafetensorsRefusal(SafetensorsOf(objects, 0)), HasSubstr("unknown field \"a\""));
  const std::string arrays(kLevels, '[');
  EXPECT_THAT(SafetensorsRefusal(SafetensorsOf("{\"w\":" + arrays, 0)),
              HasSubstr("found an array"));
  EXPECT_THAT(SafetensorsRefusal(SafetensorsOf("{\"w\":{\"shape\":" + arrays, 0)),
              HasSubstr("found an array"));
  EXPECT_THAT(SafetensorsRefusal(SafetensorsOf("{\"__metadata__\":{\"k\":" + arrays, 0)),
              HasSubstr("found an array"));
}

TEST(Safetensors, AHeaderAboveTheLimitIsRefusedUnread) {
  const TempFolder folder;
  const std::string path = folder.Write("f", std::string("\x00\xe1\xf5\x05\0\0\0\0{", 9));
  fs::resize_file(path, 300'000'000);  // sparse
  // 100,000,000 is allowed, and its content is then at fault.
  EXPECT_THAT(MessageOf([&] { SafetensorsFile::Open(path); }), HasSubstr("NUL at byte 9"));
  folder.Write("f", std::string("\x01\xe1\xf5\x05\0\0\0\0{", 9));
  fs::resize_file(path, 300'000'000);
  EXPECT_THAT(MessageOf([&] { SafetensorsFile::Open(path); }), HasSubstr("above the limit"));
}

TEST(Safetensors, NamesAreTakenAfterUnescaping) {
  const std::string file =
      SafetensorsOf(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                    R"("a\u0000b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},)"
                    R"("\ud83d\ude00":{"dtype":"U8","shape":[],"data_offsets":[2,3]}})",
                    3);
  const SafetensorsHeader header = ReadSafetensorsHeader(AsBytes(file), "f");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].name, "");
  EXPECT_EQ(header.entries[1].name, std::string("a\0b", 3));
  EXPECT_EQ(header.entries[2].name, "😀");
}

TEST(Safetensors, ALongNameIsCutInMessages) {
  const std::string name(50'000, 'n');
  const std::string message = SafetensorsRefusal(SafetensorsOf("{\"" + name + "\":1}", 0));
  EXPECT_LT(message.size(), 400u);
}

TEST(Safetensors, AFileCutWhileMappedEndsInAnError) {
  const TempFolder folder;
  const std::string path = folder / "f";
  folder.Write(
      "f",
      SafetensorsOf(R"({"w":{"dtype":"U8","shape":[100000],"data_offsets":[0,100000]}})", 100'000));
  const auto file = SafetensorsFile::Open(path);
  const Tensor tensor = file->Get("w");
  fs::resize_file(path, 50'000);
  int sum = 0;
  for (const std::byte byte : tensor.bytes()) sum += std::to_integer<int>(byte);
  EXPECT_EQ(sum, 0);
  EXPECT_THAT(MessageOf([&] { file->Verify(); }), HasSubstr("became shorter"));
}

TEST(Safetensors, AbsentTensorsAreNamed) {
  const auto file =
      SafetensorsFile::Open(test::TestDataPath("files/safetensors/ok-one.safetensors"));
  EXPECT_THAT(MessageOf([&] { file->Get("nope"); }), HasSubstr("no tensor \"nope\""));
  MessageOf([&] { file->Load(1); }, ErrorKind::kInternal);
}

}  // namespace
}  // namespace assay
