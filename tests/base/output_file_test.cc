#include "assay/base/output_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "assay/base/output_folder.h"
#include "assay/base/temporary.h"
#include "assay/base/text.h"
#include "tests/support/errors.h"
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

TEST(OutputFile, AppearsAtCommitOnly) {
  const TempFolder folder;
  OutputFile file(folder / "out.json");
  file.Append(AsBytes("ab"));
  file.Append(AsBytes("cd"));
  EXPECT_FALSE(fs::exists(folder / "out.json"));
  file.Commit();
  EXPECT_EQ(ReadFile(folder / "out.json"), "abcd");
  EXPECT_THAT(folder.Names(), ElementsAre("out.json"));
}

TEST(OutputFile, ReplacesAFileAtOnce) {
  const TempFolder folder;
  folder.Write("out", "old content");
  {
    OutputFile file(folder / "out");
    file.Append(AsBytes("new"));
    EXPECT_EQ(ReadFile(folder / "out"), "old content");
    file.Commit();
  }
  EXPECT_EQ(ReadFile(folder / "out"), "new");
}

TEST(OutputFile, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  folder.Write("out", "old");
  {
    OutputFile file(folder / "out");
    file.Reserve(1 << 20);
    file.WriteAt(100, AsBytes("x"));
  }
  EXPECT_THAT(folder.Names(), ElementsAre("out"));
  EXPECT_EQ(ReadFile(folder / "out"), "old");
}

TEST(OutputFile, FollowsALink) {
  const TempFolder folder;
  folder.Write("real", "old");
  fs::create_symlink("real", folder / "link");
  WriteFile(folder / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_EQ(ReadFile(folder / "real"), "new");
}

TEST(OutputFile, RefusesWhatCannotBeWritten) {
  const TempFolder folder;
  fs::create_directory(folder / "sub");
  EXPECT_THAT(MessageOf([&] { OutputFile file(folder / "sub"); }), HasSubstr("a folder"));
  EXPECT_THAT(MessageOf([&] { OutputFile file(folder / "none/out"); }), HasSubstr("No such file"));
  EXPECT_THAT(MessageOf([&] { OutputFile file(folder / "out/"); }), HasSubstr("no file name"));
  EXPECT_THAT(MessageOf([&] { OutputFile file(""); }), HasSubstr("no file name"));
}

TEST(OutputFile, SaysHowMuchRoomTheDiskLacks) {
  const TempFolder folder;
  {
    OutputFile file(folder / "out");
    const std::string message = MessageOf([&] { file.Reserve(int64_t{1} << 60); });
    EXPECT_THAT(message, HasSubstr("needs 1,152,921,504,606,846,976 bytes"));
  }
  EXPECT_THAT(folder.Names(), IsEmpty());
}

TEST(OutputFile, WritesToADeviceDirectly) { WriteFile("/dev/null", "text"); }

TEST(OutputFile, RemovesTemporariesNobodyHolds) {
  const TempFolder folder;
  folder.Write(std::string(kTemporaryPrefix) + "0123-dead", "left by a killed run");
  fs::create_directory(folder / (std::string(kTemporaryPrefix) + "4567-dead-folder"));
  folder.Write(std::string(kTemporaryPrefix) + "4567-dead-folder/part", "x");
  const std::string held = folder.Write(std::string(kTemporaryPrefix) + "89ab-alive", "in use");
  const int descriptor = open(held.c_str(), O_RDONLY);
  ASSERT_EQ(flock(descriptor, LOCK_EX | LOCK_NB), 0);
  WriteFile(folder / "out", "x");
  EXPECT_THAT(folder.Names(), ElementsAre(std::string(kTemporaryPrefix) + "89ab-alive", "out"));
  close(descriptor);
}

TEST(OutputFile, RefusesToReplaceItsInput) {
  const TempFolder folder;
  const std::string input = folder.Write("in", "x");
  fs::create_symlink("in", folder / "link");
  fs::create_hard_link(input, folder / "hard");
  for (const char* name : {"in", "./in", "link", "hard"}) {
    EXPECT_THAT(MessageOf([&] { RequireDistinct(folder / name, {input}); }, ErrorKind::kUsage),
                HasSubstr("also an input"));
  }
  RequireDistinct(folder / "other", {input});
}

TEST(OutputFolder, AppearsAtCommitOnly) {
  const TempFolder folder;
  {
    OutputFolder out(folder / "model/");
    WriteFile(out.FilePath("config.json"), "{}");
    EXPECT_FALSE(fs::exists(folder / "model"));
    out.Commit();
  }
  EXPECT_THAT(folder.Names(), ElementsAre("model"));
  EXPECT_EQ(ReadFile(folder / "model/config.json"), "{}");
}

TEST(OutputFolder, TakesThePlaceOfAnEmptyFolderOnly) {
  const TempFolder folder;
  fs::create_directory(folder / "empty");
  OutputFolder out(folder / "empty");
  out.Commit();
  fs::create_directory(folder / "full");
  folder.Write("full/x", "");
  folder.Write("file", "");
  for (const char* name : {"full", "file"}) {
    EXPECT_THAT(MessageOf([&] { OutputFolder refused(folder / name); }, ErrorKind::kUsage),
                HasSubstr("not an empty folder"));
  }
}

TEST(OutputFolder, LosesARaceWithoutLosingAnything) {
  const TempFolder folder;
  {
    OutputFolder out(folder / "model");
    fs::create_directory(folder / "model");
    folder.Write("model/x", "theirs");
    EXPECT_THAT(MessageOf([&] { out.Commit(); }), HasSubstr("cannot rename"));
  }
  EXPECT_THAT(folder.Names(), ElementsAre("model"));
  EXPECT_EQ(ReadFile(folder / "model/x"), "theirs");
}

TEST(OutputFolder, LeavesNothingWithoutCommit) {
  const TempFolder folder;
  {
    OutputFolder out(folder / "model");
    WriteFile(out.FilePath("a"), "x");
  }
  EXPECT_THAT(folder.Names(), IsEmpty());
}

}  // namespace
}  // namespace assay
