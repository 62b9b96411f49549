#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

namespace assay {

class OutputFile;

/// Where each tensor of an output goes, and how much of it has arrived.
/// Threads: Write may be called from several threads at once.
class OutputSlots {
 public:
  /// `path` starts every message.
  explicit OutputSlots(std::string path) : path_(std::move(path)) {}

  /// `file` outlives this. Errors: input when the name is taken.
  void Add(const std::string& name, const OutputFile& file, int64_t offset, int64_t num_bytes);

  /// The bytes of a tensor from byte `offset` of it. Errors: internal for a tensor or a range that
  /// was not announced; input.
  void Write(std::string_view name, std::span<const std::byte> bytes, int64_t offset);

  /// Errors: internal when bytes are missing.
  void RequireComplete() const;

 private:
  struct Slot {
    const OutputFile* file;
    int64_t offset;
    int64_t num_bytes;
    std::atomic<int64_t> written{0};

    Slot(const OutputFile* out, int64_t begin, int64_t size)
        : file(out), offset(begin), num_bytes(size) {}
  };

  std::string path_;
  std::deque<Slot> slots_;  // stays in place: slots hold atomics
  std::unordered_map<std::string, Slot*> by_name_;
};

}  // namespace assay
