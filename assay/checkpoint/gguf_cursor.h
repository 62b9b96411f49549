#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "assay/base/error.h"

namespace assay {

/// Reads the head of a GGUF file from front to back. Every length is compared with what is left of
/// the file before it is used; messages name the file, the byte, and what was being read.
class GgufCursor {
 public:
  GgufCursor(std::span<const std::byte> file, std::string_view path) : file_(file), path_(path) {}

  uint64_t position() const noexcept { return position_; }
  uint64_t num_left() const noexcept { return file_.size() - position_; }

  /// What the messages from here on are about: "metadata entry", number `index` from 0; no name.
  void Enter(std::string_view item, uint64_t index);
  /// Also tell which item, number `count` from 1, was the last before it.
  void Follows(std::string_view item, uint64_t count);
  /// Its name, once read; refers to the file's bytes.
  void Name(std::string_view name) { name_ = name; }

  /// Little-endian. `field` is for the message. Errors: input, when the file ends before.
  template <typename T>
  T Read(std::string_view field) {
    T value;
    std::memcpy(&value, ReadBytes(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> ReadBytes(uint64_t count, std::string_view field);

  /// A u64 length and that many bytes. Errors: input, also for lengths above 1 GiB.
  std::string_view ReadString(std::string_view field);

  /// `what` about what starts at byte `at`. Errors: input, always.
  template <typename... Args>
  [[noreturn]] void Refuse(uint64_t at, fmt::format_string<Args...> what, Args&&... args) const {
    Throw(at, fmt::format(what, std::forward<Args>(args)...));
  }

 private:
  [[noreturn]] void Throw(uint64_t at, const std::string& what) const;

  std::span<const std::byte> file_;
  std::string_view path_;
  uint64_t position_ = 0;
  std::string_view item_ = "header";
  uint64_t index_ = 0;
  std::string_view name_;
  std::string after_;
};

}  // namespace assay
