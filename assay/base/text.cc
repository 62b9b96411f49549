#include "assay/base/text.h"

#include <fmt/format.h>

namespace assay {
namespace {

constexpr size_t kMaxQuotedBytes = 160;

uint8_t ByteAt(std::string_view text, size_t index) noexcept {
  return static_cast<uint8_t>(text[index]);
}

bool IsContinuation(std::string_view text, size_t index) noexcept {
  return index < text.size() && (ByteAt(text, index) & 0xC0) == 0x80;
}

// Bytes of the well-formed character at `index`, 0 when there is none.
size_t Utf8Length(std::string_view text, size_t index) noexcept {
  const uint8_t lead = ByteAt(text, index);
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // a continuation byte, or an overlong form of ASCII
  if (!IsContinuation(text, index + 1)) return 0;
  const uint8_t second = ByteAt(text, index + 1);
  if (lead < 0xE0) return 2;
  if (lead == 0xE0 && second < 0xA0) return 0;  // overlong
  if (lead == 0xED && second > 0x9F) return 0;  // surrogate
  if (!IsContinuation(text, index + 2)) return 0;
  if (lead < 0xF0) return 3;
  if (lead == 0xF0 && second < 0x90) return 0;  // overlong
  if (lead == 0xF4 && second > 0x8F) return 0;  // above U+10FFFF
  if (lead > 0xF4 || !IsContinuation(text, index + 3)) return 0;
  return 4;
}

void AppendEscaped(std::string& out, std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const uint8_t byte = ByteAt(text, i);
    const size_t length = Utf8Length(text, i);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", byte);
    } else if (byte == '"' || byte == '\\') {
      out += '\\';
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += text.substr(i, length);
    }
    i += length == 0 ? 1 : length;
  }
}

}  // namespace

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  if (text.size() <= kMaxQuotedBytes) {
    AppendEscaped(out, text);
  } else {
    size_t head = kMaxQuotedBytes / 2;
    while (head > 0 && IsContinuation(text, head)) --head;
    size_t tail = text.size() - kMaxQuotedBytes / 2;
    while (IsContinuation(text, tail)) ++tail;
    AppendEscaped(out, text.substr(0, head));
    out += fmt::format("…({} bytes)…", Grouped(static_cast<uint64_t>(tail - head)));
    AppendEscaped(out, text.substr(tail));
  }
  out += '"';
  return out;
}

std::string Grouped(uint64_t value) {
  const std::string digits = fmt::format("{}", value);
  std::string grouped;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) grouped += ',';
    grouped += digits[i];
  }
  return grouped;
}

std::string Grouped(int64_t value) {
  if (value >= 0) return Grouped(static_cast<uint64_t>(value));
  return fmt::format("-{}", Grouped(~static_cast<uint64_t>(value) + 1));
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::optional<size_t> FirstInvalidUtf8(std::string_view text) noexcept {
  for (size_t i = 0; i < text.size();) {
    const size_t length = Utf8Length(text, i);
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace assay
