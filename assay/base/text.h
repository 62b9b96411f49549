#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace assay {

/// `text` in double quotes for a message: control characters, quotes and backslashes escaped as
/// JSON does, bytes that are not UTF-8 as \xNN, and long text cut in the middle.
/// Why: names come from files; a message stays one line whatever they hold.
std::string Quoted(std::string_view text);

/// 1234567 → "1,234,567".
std::string Grouped(uint64_t value);
std::string Grouped(int64_t value);

/// ASCII letters in lower case.
std::string Lower(std::string_view text);

/// Offset of the first byte that does not belong to well-formed UTF-8 (RFC 3629: no overlong forms,
/// no surrogates, nothing above U+10FFFF); nothing when all of it does.
std::optional<size_t> FirstInvalidUtf8(std::string_view text) noexcept;

/// The same memory as characters, and as bytes.
inline std::string_view AsText(std::span<const std::byte> bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> AsBytes(std::string_view text) noexcept {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace assay
