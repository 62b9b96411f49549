#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// A file that appears under its name whole or not at all.
/// Why:     it is written without a name where the file system can do that (O_TMPFILE), else under
///          ".assay-tmp-…" beside its place; Commit syncs it and renames. An exception removes it;
///          after a kill at most such a temporary is left, and the next output into that folder
///          removes those nobody holds.
/// Threads: WriteAt may be called from several threads at once.
/// Errors:  input, for everything the file system refuses, naming the path.
class OutputFile {
 public:
  /// `path`: a link is followed. A file that stands there is replaced at Commit.
  /// Errors: input when the folder cannot be written to or `path` is no regular file.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Sets the size and takes the disk space, so that a full disk shows before the work.
  /// Errors: input, with the bytes needed and free.
  void Reserve(int64_t num_bytes);

  void WriteAt(int64_t offset, std::span<const std::byte> bytes) const;
  /// Writes after what was appended before.
  void Append(std::span<const std::byte> bytes);

  /// Syncs, then gives the file its name. Call once; nothing may be written afterwards.
  void Commit();

 private:
  void OpenTemporary();
  [[noreturn]] void Fail(std::string_view what) const;

  std::string path_;       // as given, for messages
  std::string target_;     // links resolved
  std::string folder_;     // of target_
  std::string temporary_;  // empty while the file has no name
  int descriptor_ = -1;
  int64_t appended_ = 0;
  bool committed_ = false;
};

/// Writes a whole file through OutputFile; to a device or a FIFO ("/dev/stdout") directly.
/// Errors: input.
void WriteFile(const std::string& path, std::string_view content);

/// Refuses an output that is one of the inputs, however it is spelled: links, "..", hard links.
/// Errors: usage.
void RequireDistinct(const std::string& output, const std::vector<std::string>& inputs);

/// Refuses an output whose folder does not exist or cannot be written, before any work.
/// Errors: input.
void RequireWritableParent(const std::string& output);

}  // namespace assay
