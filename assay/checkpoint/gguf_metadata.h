#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace assay {

/// The number of the type that most matrices have (ggml_file_type.h).
inline constexpr std::string_view kGgufFileTypeKey = "general.file_type";

/// Types of metadata values, under the numbers a file stores.
/// Source: docs/formats/gguf.md.
enum class GgufType : int32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

/// Nothing for numbers that are no type.
std::optional<GgufType> ParseGgufType(int32_t number) noexcept;

/// "u8", "string", "array".
std::string_view NameOf(GgufType type) noexcept;

/// Bytes of one value; 0 for strings and arrays, whose sizes differ.
size_t NumBytesOf(GgufType type) noexcept;

/// A typed value as its bytes: those of a file stay in the mapping, arrays too, so that a
/// vocabulary is not copied. Copies are cheap and share the bytes.
/// Layout: scalars little-endian; a string is a u64 length and its bytes; an array its elements.
class GgufValue {
 public:
  static GgufValue Of(uint32_t value);
  static GgufValue Of(std::string_view value);

  /// `bytes` as above, kept alive by `owner` (by the caller when it is null). A reader has checked
  /// them. `element` is that of an array, `count` its elements; else `type` and 1.
  GgufValue(GgufType type, GgufType element, uint64_t count, std::span<const std::byte> bytes,
            std::shared_ptr<const void> owner)
      : type_(type), element_(element), count_(count), bytes_(bytes), owner_(std::move(owner)) {}

  GgufType type() const noexcept { return type_; }
  bool is_array() const noexcept { return type_ == GgufType::kArray; }
  /// Type of the elements of an array; of a single value its own.
  GgufType element() const noexcept { return element_; }
  /// Elements of an array; 1 for a single value.
  uint64_t count() const noexcept { return count_; }
  std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// A whole number of any width, when it is one that fits; a bool is 0 or 1.
  std::optional<int64_t> AsInteger() const;
  /// The bytes of a single string.
  std::optional<std::string_view> AsString() const;

  /// Text of element `index` of an array of numbers or bools, or of a single value (index 0).
  /// Requires: no strings, index < count().
  std::string NumberText(uint64_t index = 0) const;
  /// All strings of an array of strings, or the single one: one pass. Requires: strings.
  std::vector<std::string_view> Strings() const;

  /// Short text: numbers, true or false; of a string the first 1,024 bytes, what is not UTF-8
  /// escaped; of an array how many of what.
  std::string ToText() const;

  /// Same type, same bytes.
  friend bool operator==(const GgufValue& a, const GgufValue& b) noexcept;

 private:
  GgufType type_;
  GgufType element_;
  uint64_t count_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// The key-value pairs of a file, in its order. Look-ups walk over them: there are some dozens, and
/// nothing about them is hashed that a file could choose.
class GgufMetadata {
 public:
  struct Entry {
    std::string key;
    GgufValue value;
    friend bool operator==(const Entry&, const Entry&) = default;
  };

  const std::vector<Entry>& entries() const noexcept { return entries_; }

  /// Null when there is none.
  const GgufValue* Find(std::string_view key) const noexcept;
  /// As GgufValue; nothing too when there is no such key.
  std::optional<int64_t> Integer(std::string_view key) const;
  std::optional<std::string_view> String(std::string_view key) const;

  /// Requires a key that is not there yet.
  void Append(std::string_view key, GgufValue value);
  /// In place of what the key had, else at the end.
  void Set(std::string_view key, GgufValue value);
  void Erase(std::string_view key);

  friend bool operator==(const GgufMetadata&, const GgufMetadata&) = default;

 private:
  std::vector<Entry> entries_;
};

}  // namespace assay
