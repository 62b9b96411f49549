#include "assay/base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "assay/base/error.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

void RemoveIfStale(const fs::path& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  close(descriptor);
}

}  // namespace

std::string TemporaryPath(const std::string& folder, std::string_view name) {
  std::random_device random;
  const uint64_t tag = uint64_t{random()} << 32 | random();
  // The name is for people who find it; a long one would break the limit of 255 bytes.
  constexpr size_t kMaxNameBytes = 100;
  return fmt::format("{}/{}{:016x}-{}", folder, kTemporaryPrefix, tag,
                     name.substr(0, kMaxNameBytes));
}

bool LockTemporary(int descriptor, const std::string& path) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) return false;
  // Between creation and lock, another run may have taken it for a stale one.
  struct stat by_descriptor = {};
  struct stat by_path = {};
  return fstat(descriptor, &by_descriptor) == 0 && lstat(path.c_str(), &by_path) == 0 &&
         by_descriptor.st_dev == by_path.st_dev && by_descriptor.st_ino == by_path.st_ino;
}

void RemoveStaleTemporaries(const std::string& folder) noexcept {
  try {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().filename().string().starts_with(kTemporaryPrefix)) {
        RemoveIfStale(entry->path());
      }
    }
  } catch (const std::exception&) {
    return;  // out of memory: what is stale stays for the next run
  }
}

std::string FolderOf(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

void SyncFolder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const bool synced = descriptor >= 0 && (fsync(descriptor) == 0 || errno == EINVAL);
  const int error = errno;
  if (descriptor >= 0) close(descriptor);
  if (!synced) ThrowInput("{}: cannot sync the folder: {}", folder, std::strerror(error));
}

}  // namespace assay
