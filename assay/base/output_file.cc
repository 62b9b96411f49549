#include "assay/base/output_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/temporary.h"
#include "assay/base/text.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kMode = 0666;  // the umask takes its part

// Where a rename must go: the file behind a link, not the link.
std::string ResolveFile(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::weakly_canonical(path, error);
  return error ? path : resolved.string();
}

std::string DescriptorPath(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

void WriteAll(int descriptor, int64_t offset, std::span<const std::byte> bytes,
              const std::string& path) {
  constexpr size_t kMaxCall = size_t{1} << 30;  // Linux writes at most 2 GiB a call
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor, bytes.data(), std::min(bytes.size(), kMaxCall),
                                   static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      if (errno == EFAULT) {
        // Bytes of a mapped input that is no longer there.
        ThrowInput("{}: an input file became shorter while it was copied", path);
      }
      ThrowInput("{}: cannot write at byte {}: {}", path, Grouped(offset), std::strerror(errno));
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), target_(ResolveFile(path)) {
  folder_ = FolderOf(target_);
  struct stat status = {};
  if (stat(target_.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
    ThrowInput("{}: cannot write: {} stands there", path,
               S_ISDIR(status.st_mode) ? "a folder" : "something that is no regular file");
  }
  if (path.empty() || path.ends_with('/'))
    ThrowInput("{}: cannot write: no file name", Quoted(path));
  RemoveStaleTemporaries(folder_);
  OpenTemporary();
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!committed_ && !temporary_.empty()) unlink(temporary_.c_str());
}

void OutputFile::Fail(std::string_view what) const {
  ThrowInput("{}: cannot {}: {}", path_, what, std::strerror(errno));
}

void OutputFile::OpenTemporary() {
  descriptor_ = open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode);
  if (descriptor_ >= 0) {
    // Locked now, so that between link and rename nobody takes it for a stale one.
    if (access(DescriptorPath(descriptor_).c_str(), F_OK) == 0 &&
        flock(descriptor_, LOCK_EX | LOCK_NB) == 0) {
      return;
    }
    close(descriptor_);  // no /proc to give it a name through
  }
  constexpr int kAttempts = 16;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    temporary_ = TemporaryPath(folder_, fs::path(target_).filename().string());
    descriptor_ = open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kMode);
    if (descriptor_ < 0) {
      temporary_.clear();
      if (errno == EEXIST) continue;
      Fail("write");
    }
    if (LockTemporary(descriptor_, temporary_)) return;
    close(descriptor_);
    unlink(temporary_.c_str());
    descriptor_ = -1;
  }
  ThrowInput("{}: cannot write: other runs keep removing its temporary file", path_);
}

void OutputFile::Reserve(int64_t num_bytes) {
  if (num_bytes == 0) return;
  if (fallocate(descriptor_, 0, 0, static_cast<off_t>(num_bytes)) == 0) return;
  const int error = errno;
  struct statvfs disk = {};
  const bool known = fstatvfs(descriptor_, &disk) == 0;
  const uint64_t free = known ? uint64_t{disk.f_bavail} * disk.f_frsize : 0;
  if (error == ENOSPC || error == EDQUOT || (known && free < static_cast<uint64_t>(num_bytes))) {
    ThrowInput("{}: the disk has no room: needs {} bytes, {} are free", path_, Grouped(num_bytes),
               Grouped(free));
  }
  if (error != EOPNOTSUPP && error != ENOSYS && error != EINTR) {
    errno = error;
    Fail("reserve its space");
  }
  if (ftruncate(descriptor_, static_cast<off_t>(num_bytes)) != 0) Fail("set its size");
}

void OutputFile::WriteAt(int64_t offset, std::span<const std::byte> bytes) const {
  WriteAll(descriptor_, offset, bytes, path_);
}

void OutputFile::Append(std::span<const std::byte> bytes) {
  WriteAt(appended_, bytes);
  appended_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::Commit() {
  if (committed_) ThrowInternal("{}: committed twice", path_);
  if (fsync(descriptor_) != 0) Fail("sync");
  if (temporary_.empty()) {
    // A link cannot replace a file, so the name comes in two steps.
    std::string name = TemporaryPath(folder_, fs::path(target_).filename().string());
    if (linkat(AT_FDCWD, DescriptorPath(descriptor_).c_str(), AT_FDCWD, name.c_str(),
               AT_SYMLINK_FOLLOW) != 0) {
      Fail("name");
    }
    temporary_ = std::move(name);
  }
  if (rename(temporary_.c_str(), target_.c_str()) != 0) Fail("rename");
  committed_ = true;
  SyncFolder(folder_);
}

void WriteFile(const std::string& path, std::string_view content) {
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0 && (S_ISCHR(status.st_mode) || S_ISFIFO(status.st_mode))) {
    const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
    size_t done = 0;
    while (descriptor >= 0 && done < content.size()) {
      const ssize_t written = write(descriptor, content.data() + done, content.size() - done);
      if (written < 0 && errno != EINTR) break;
      done += written > 0 ? static_cast<size_t>(written) : 0;
    }
    const int error = errno;
    const bool closed = descriptor >= 0 && close(descriptor) == 0;
    if (done < content.size() || !closed) {
      ThrowInput("{}: cannot write: {}", path, std::strerror(error));
    }
    return;
  }
  OutputFile file(path);
  file.Append(AsBytes(content));
  file.Commit();
}

void RequireDistinct(const std::string& output, const std::vector<std::string>& inputs) {
  struct stat out = {};
  const bool exists = stat(output.c_str(), &out) == 0;
  const std::string resolved = ResolveFile(output);
  for (const std::string& input : inputs) {
    struct stat in = {};
    const bool same_file = exists && stat(input.c_str(), &in) == 0 && in.st_dev == out.st_dev &&
                           in.st_ino == out.st_ino;
    if (same_file || ResolveFile(input) == resolved) {
      ThrowUsage("{}: the output is also an input ({}); choose another name", output, input);
    }
  }
}

void RequireWritableParent(const std::string& output) {
  const size_t slash = output.find_last_not_of('/') == std::string::npos
                           ? std::string::npos
                           : output.rfind('/', output.find_last_not_of('/'));
  const std::string parent = slash == std::string::npos ? "." : output.substr(0, slash + 1);
  if (access(parent.c_str(), W_OK) != 0) {
    ThrowInput("{}: cannot be written: {}: {}", output, parent, std::strerror(errno));
  }
}

}  // namespace assay
