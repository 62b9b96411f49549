#include "assay/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <thread>

#include "assay/base/text.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using test::MessageOf;
using test::TempFolder;
using ::testing::HasSubstr;

constexpr size_t kPage = 4096;

uint64_t Sum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}, [](uint64_t sum, std::byte b) {
    return sum + std::to_integer<uint64_t>(b);
  });
}

std::string Text(size_t num_bytes) { return std::string(num_bytes, '\x01'); }

TEST(MappedFile, GivesTheBytesOfTheFile) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", "content"));
  EXPECT_EQ(AsText(file->bytes()), "content");
  EXPECT_EQ(file->num_bytes(), 7);
  file->Verify();
  MappedFile::VerifyAll();
}

TEST(MappedFile, HoldsAnEmptyFile) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", ""));
  EXPECT_EQ(file->num_bytes(), 0);
  file->Verify();
}

TEST(MappedFile, IsNotHurtByARemovedOrReplacedName) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", Text(3 * kPage)));
  fs::rename(folder.Write("g", "x"), folder / "f");
  EXPECT_EQ(Sum(file->bytes()), 3 * kPage);
  file->Verify();
}

TEST(MappedFile, ACutFileEndsInAnErrorNotACrash) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", Text(8 * kPage + 100)));
  fs::resize_file(folder / "f", 2 * kPage + 5);
  // What the file still has, then zeros.
  EXPECT_EQ(Sum(file->bytes()), 2 * kPage + 5);
  EXPECT_THAT(MessageOf([&] { file->Verify(); }), HasSubstr("became shorter"));
  EXPECT_THAT(MessageOf([&] { MappedFile::VerifyAll(); }), HasSubstr(folder / "f"));
  // It grew again, but what was read in between is lost.
  fs::resize_file(folder / "f", 8 * kPage + 100);
  EXPECT_THAT(MessageOf([&] { file->Verify(); }), HasSubstr("became shorter"));
}

TEST(MappedFile, ACutWithinTheLastPageIsNoticed) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", Text(100)));
  fs::resize_file(folder / "f", 60);
  EXPECT_EQ(Sum(file->bytes()), 60u);  // no signal inside a page
  EXPECT_THAT(MessageOf([&] { file->Verify(); }), HasSubstr("had 100 bytes"));
}

TEST(MappedFile, VerifyAllRemembersAFileThatWasClosed) {
  const TempFolder folder;
  {
    const auto file = MappedFile::Open(folder.Write("f", Text(4 * kPage)));
    fs::resize_file(folder / "f", 0);
    EXPECT_EQ(Sum(file->bytes()), 0u);
  }
  EXPECT_THAT(MessageOf([] { MappedFile::VerifyAll(); }), HasSubstr(folder / "f"));
  MappedFile::VerifyAll();  // told once
  {
    const auto file = MappedFile::Open(folder.Write("g", Text(100)));
    fs::resize_file(folder / "g", 60);
    MessageOf([&] { file->Verify(); });
  }
  MappedFile::VerifyAll();  // told by Verify
}

TEST(MappedFile, OtherMappingsStayWholeWhenOneIsCut) {
  const TempFolder folder;
  const auto cut = MappedFile::Open(folder.Write("cut", Text(4 * kPage)));
  const auto whole = MappedFile::Open(folder.Write("whole", Text(4 * kPage)));
  fs::resize_file(folder / "cut", 0);
  EXPECT_EQ(Sum(cut->bytes()), 0u);
  EXPECT_EQ(Sum(whole->bytes()), 4 * kPage);
  whole->Verify();
  MessageOf([&] { cut->Verify(); });
}

TEST(MappedFile, ThreadsMayFaultTogether) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", Text(256 * kPage)));
  fs::resize_file(folder / "f", 0);
  std::vector<std::thread> threads;
  std::vector<uint64_t> sums(4, 1);
  for (size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] { sums[t] = Sum(file->bytes().subspan(t * 64 * kPage)); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sums, std::vector<uint64_t>(4, 0));
  MessageOf([&] { file->Verify(); });
}

// Runs `body` in a child and gives the signal that ended it, 0 when it exited.
template <typename Body>
int SignalThatEnds(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

#if !defined(__SANITIZE_ADDRESS__)  // it installs its own handler, which ends with exit
// A mapping that MappedFile knows nothing of, with nothing behind it.
const volatile char* ForeignFault(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY);
  const void* address = mmap(nullptr, kPage, PROT_READ, MAP_SHARED, descriptor, 0);
  fs::resize_file(path, 0);
  return static_cast<const volatile char*>(address);
}

TEST(MappedFile, FaultsElsewhereStillEndTheProcess) {
  const TempFolder folder;
  const auto file = MappedFile::Open(folder.Write("f", Text(kPage)));
  const std::string other = folder.Write("other", Text(kPage));
  EXPECT_EQ(SignalThatEnds([&] { (void)*ForeignFault(other); }), SIGBUS);
  EXPECT_EQ(SignalThatEnds([] { raise(SIGBUS); }), SIGBUS);
}
#endif

TEST(MappedFile, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder.path()); }), HasSubstr("found a folder"));
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", folder / "link-to-fifo");
  fs::create_symlink("/dev/zero", folder / "link-to-device");
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder / "fifo"); }), HasSubstr("a FIFO"));
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder / "link-to-fifo"); }), HasSubstr("a FIFO"));
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder / "link-to-device"); }),
              HasSubstr("a device"));
}

TEST(MappedFile, SaysWhyAPathDoesNotOpen) {
  const TempFolder folder;
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder / "none"); }), HasSubstr("No such file"));
  fs::create_symlink("../blobs/1234", folder / "dangling");
  const std::string message = MessageOf([&] { MappedFile::Open(folder / "dangling"); });
  EXPECT_THAT(message, HasSubstr(folder / "dangling"));
  EXPECT_THAT(message, HasSubstr("../blobs/1234"));
  fs::create_symlink("loop", folder / "loop");
  EXPECT_THAT(MessageOf([&] { MappedFile::Open(folder / "loop"); }), HasSubstr("links"));
  EXPECT_THAT(MessageOf([] { MappedFile::Open(std::string("a\0b", 3)); }), HasSubstr("NUL"));
}

}  // namespace
}  // namespace assay
