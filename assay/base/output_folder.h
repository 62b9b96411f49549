#pragma once

#include <string>
#include <string_view>

namespace assay {

/// A folder that appears under its name whole or not at all.
/// Why:    files are written into ".assay-tmp-…" beside its place, which Commit renames. An
///         exception removes it; after a kill the next output into the parent folder does.
/// Errors: input, for everything the file system refuses, naming the path.
class OutputFolder {
 public:
  /// Errors: usage when something stands at `path` that is not an empty folder; input when the
  /// parent folder cannot be written to.
  explicit OutputFolder(const std::string& path);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& path() const noexcept { return path_; }

  /// Where to write the file that will be `name` in the folder.
  /// Errors: internal when `name` is not a plain file name.
  std::string FilePath(std::string_view name) const;

  /// Gives the folder its name. Every file must have been committed before. Call once.
  void Commit();

 private:
  std::string path_;
  std::string target_;
  std::string parent_;
  std::string temporary_;
  int descriptor_ = -1;  // holds the lock
  bool committed_ = false;
};

}  // namespace assay
