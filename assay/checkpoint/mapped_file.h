#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace assay {

namespace internal {
struct MappingSlot;
}

/// A regular file mapped read-only.
/// Why:     a model is larger than memory, and only some of it is looked at.
/// Errors:  a file that shrinks (or whose disk fails) while it is mapped would end the process with
///          SIGBUS. A process-wide handler instead puts zero pages over the rest of that mapping
///          and marks it as damaged; whoever used the bytes calls Verify afterwards and throws.
///          Faults elsewhere go on to the handler that was installed before.
/// Threads: bytes may be read, and Verify called, from any thread. After damage, another thread may
///          read zeros anywhere in the mapping, which is why its Verify throws too.
class MappedFile {
 public:
  /// Symbolic links are followed. Errors: input, for a path that does not exist, a dangling link
  /// (names link and target), and for anything but a regular file (folder, FIFO, device, socket).
  static std::shared_ptr<const MappedFile> Open(const std::string& path);

  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const noexcept { return path_; }
  /// The whole file, at the size it had when it was opened.
  std::span<const std::byte> bytes() const noexcept { return bytes_; }
  int64_t num_bytes() const noexcept { return static_cast<int64_t>(bytes_.size()); }

  /// Call after the bytes were used and before the result counts.
  /// Errors: input when the file is now shorter than it was, or a page could not be read.
  void Verify() const;

  /// Verify for every mapping of the process, and for those closed since the last call whose fault
  /// nobody was told: a command calls it once before it states a result. Errors: input, naming the
  /// first damaged file.
  static void VerifyAll();

 private:
  MappedFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  /// What is wrong with the mapping now; empty when nothing is.
  std::string Fault() const;

  std::string path_;
  int descriptor_;
  std::span<const std::byte> bytes_;
  internal::MappingSlot* slot_ = nullptr;
  mutable std::atomic<bool> told_{false};  // Verify has thrown
};

}  // namespace assay
