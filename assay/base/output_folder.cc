#include "assay/base/output_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "assay/base/error.h"
#include "assay/base/temporary.h"
#include "assay/base/text.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// "out/" and "a/../out" → the absolute path of out: renames want a plain last name.
std::string ResolveFolder(const std::string& path) {
  if (path.empty()) ThrowUsage("the output folder has no name");
  std::error_code error;
  fs::path resolved = fs::weakly_canonical(fs::absolute(path), error);
  if (error) ThrowInput("{}: {}", path, error.message());
  if (!resolved.has_filename()) resolved = resolved.parent_path();
  return resolved.string();
}

}  // namespace

OutputFolder::OutputFolder(const std::string& path)
    : path_(path), target_(ResolveFolder(path)), parent_(FolderOf(target_)) {
  std::error_code error;
  const fs::file_status status = fs::status(target_, error);
  if (fs::exists(status) && (!fs::is_directory(status) || !fs::is_empty(target_, error))) {
    ThrowUsage("{}: the output exists and is not an empty folder; choose another name", path);
  }
  RemoveStaleTemporaries(parent_);
  constexpr int kAttempts = 16;
  constexpr mode_t kFolderMode = 0777;  // the umask takes its part
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    temporary_ = TemporaryPath(parent_, fs::path(target_).filename().string());
    if (mkdir(temporary_.c_str(), kFolderMode) != 0) {
      if (errno == EEXIST) continue;
      ThrowInput("{}: cannot create it: {}", path, std::strerror(errno));
    }
    descriptor_ = open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor_ >= 0 && LockTemporary(descriptor_, temporary_)) return;
    if (descriptor_ >= 0) close(descriptor_);
    fs::remove_all(temporary_, error);
  }
  ThrowInput("{}: cannot create it: other runs keep removing its temporary folder", path);
}

OutputFolder::~OutputFolder() {
  if (!committed_) {
    std::error_code ignored;
    fs::remove_all(temporary_, ignored);
  }
  close(descriptor_);
}

std::string OutputFolder::FilePath(std::string_view name) const {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos) {
    ThrowInternal("{}: {} is not a plain file name", path_, Quoted(name));
  }
  return temporary_ + "/" + std::string(name);
}

void OutputFolder::Commit() {
  if (committed_) ThrowInternal("{}: committed twice", path_);
  SyncFolder(temporary_);
  // Over an empty folder a rename works; over anything else it fails and nothing is lost.
  if (rename(temporary_.c_str(), target_.c_str()) != 0) {
    ThrowInput("{}: cannot rename: {}", path_, std::strerror(errno));
  }
  committed_ = true;
  SyncFolder(parent_);
}

}  // namespace assay
