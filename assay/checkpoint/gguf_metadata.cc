#include "assay/checkpoint/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

struct GgufTypeFacts {
  std::string_view name;
  size_t num_bytes;
};

// By number.
constexpr std::array<GgufTypeFacts, 13> kGgufTypes = {{{"u8", 1},
                                                       {"i8", 1},
                                                       {"u16", 2},
                                                       {"i16", 2},
                                                       {"u32", 4},
                                                       {"i32", 4},
                                                       {"f32", 4},
                                                       {"bool", 1},
                                                       {"string", 0},
                                                       {"array", 0},
                                                       {"u64", 8},
                                                       {"i64", 8},
                                                       {"f64", 8}}};

template <typename T>
T Take(std::span<const std::byte> bytes) {
  static_assert(std::endian::native == std::endian::little);
  if (bytes.size() < sizeof(T)) ThrowInternal("metadata value of {} bytes", bytes.size());
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// The string at the start of `bytes`, which lose it.
std::string_view TakeString(std::span<const std::byte>& bytes) {
  const auto length = Take<uint64_t>(bytes);
  bytes = bytes.subspan(sizeof(uint64_t));
  if (length > bytes.size()) ThrowInternal("metadata string of {} bytes", length);
  const std::string_view text = AsText(bytes.first(static_cast<size_t>(length)));
  bytes = bytes.subspan(static_cast<size_t>(length));
  return text;
}

GgufValue Owning(GgufType type, std::vector<std::byte> bytes) {
  const auto owner = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return {type, type, 1, *owner, owner};
}

// At most `limit` bytes, cut between characters; bytes that are not UTF-8 as \xNN.
std::string Readable(std::string_view text, size_t limit) {
  const bool cut = text.size() > limit;
  text = text.substr(0, limit);
  std::string readable;
  while (const auto invalid = FirstInvalidUtf8(text)) {
    readable += text.substr(0, *invalid);
    text.remove_prefix(*invalid);
    if (cut && text.size() < 4) {  // a character that the limit split
      text = {};
      break;
    }
    readable += fmt::format("\\x{:02X}", static_cast<unsigned char>(text.front()));
    text.remove_prefix(1);
  }
  readable += text;
  if (cut) readable += "…";
  return readable;
}

}  // namespace

std::optional<GgufType> ParseGgufType(int32_t number) noexcept {
  if (number < 0 || static_cast<size_t>(number) >= kGgufTypes.size()) return std::nullopt;
  return static_cast<GgufType>(number);
}

std::string_view NameOf(GgufType type) noexcept {
  return kGgufTypes[static_cast<size_t>(type)].name;
}

size_t NumBytesOf(GgufType type) noexcept {
  return kGgufTypes[static_cast<size_t>(type)].num_bytes;
}

GgufValue GgufValue::Of(uint32_t value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return Owning(GgufType::kU32, std::move(bytes));
}

GgufValue GgufValue::Of(std::string_view value) {
  const uint64_t length = value.size();
  std::vector<std::byte> bytes(sizeof length + value.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::copy_n(AsBytes(value).begin(), value.size(), bytes.begin() + sizeof length);
  return Owning(GgufType::kString, std::move(bytes));
}

std::optional<int64_t> GgufValue::AsInteger() const {
  switch (type_) {
    case GgufType::kU8:
      return Take<uint8_t>(bytes_);
    case GgufType::kI8:
      return Take<int8_t>(bytes_);
    case GgufType::kU16:
      return Take<uint16_t>(bytes_);
    case GgufType::kI16:
      return Take<int16_t>(bytes_);
    case GgufType::kU32:
      return Take<uint32_t>(bytes_);
    case GgufType::kI32:
      return Take<int32_t>(bytes_);
    case GgufType::kBool:
      return Take<uint8_t>(bytes_) != 0 ? 1 : 0;
    case GgufType::kI64:
      return Take<int64_t>(bytes_);
    case GgufType::kU64: {
      const auto value = Take<uint64_t>(bytes_);
      if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case GgufType::kF32:
    case GgufType::kF64:
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  return std::nullopt;
}

std::optional<std::string_view> GgufValue::AsString() const {
  if (type_ != GgufType::kString) return std::nullopt;
  std::span<const std::byte> bytes = bytes_;
  return TakeString(bytes);
}

std::string GgufValue::NumberText(uint64_t index) const {
  if (index >= count_ || element_ == GgufType::kString || element_ == GgufType::kArray) {
    ThrowInternal("metadata: no number {} in {} values of {}", index, count_, NameOf(element_));
  }
  const size_t num_bytes = NumBytesOf(element_);
  const auto bytes = bytes_.subspan(static_cast<size_t>(index) * num_bytes, num_bytes);
  switch (element_) {
    case GgufType::kF32:
      return fmt::format("{}", Take<float>(bytes));
    case GgufType::kF64:
      return fmt::format("{}", Take<double>(bytes));
    case GgufType::kBool:
      return Take<uint8_t>(bytes) != 0 ? "true" : "false";
    case GgufType::kU64:
      return fmt::format("{}", Take<uint64_t>(bytes));
    default:
      return fmt::format("{}",
                         GgufValue(element_, element_, 1, bytes, nullptr).AsInteger().value());
  }
}

std::vector<std::string_view> GgufValue::Strings() const {
  if (element_ != GgufType::kString) {
    ThrowInternal("metadata: values of {} are no strings", NameOf(element_));
  }
  std::vector<std::string_view> strings;
  std::span<const std::byte> bytes = bytes_;
  while (!bytes.empty()) strings.push_back(TakeString(bytes));
  return strings;
}

std::string GgufValue::ToText() const {
  constexpr size_t kMaxBytes = 1024;
  if (is_array()) return fmt::format("{} × {}", Grouped(count_), NameOf(element_));
  if (const auto text = AsString()) return Readable(*text, kMaxBytes);
  return NumberText();
}

bool operator==(const GgufValue& a, const GgufValue& b) noexcept {
  return a.type_ == b.type_ && a.element_ == b.element_ && a.count_ == b.count_ &&
         std::ranges::equal(a.bytes_, b.bytes_);
}

const GgufValue* GgufMetadata::Find(std::string_view key) const noexcept {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  return found == entries_.end() ? nullptr : &found->value;
}

std::optional<int64_t> GgufMetadata::Integer(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsInteger();
}

std::optional<std::string_view> GgufMetadata::String(std::string_view key) const {
  const GgufValue* value = Find(key);
  return value == nullptr ? std::nullopt : value->AsString();
}

void GgufMetadata::Append(std::string_view key, GgufValue value) {
  entries_.push_back({std::string(key), std::move(value)});
}

void GgufMetadata::Set(std::string_view key, GgufValue value) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) return Append(key, std::move(value));
  found->value = std::move(value);
}

void GgufMetadata::Erase(std::string_view key) {
  std::erase_if(entries_, [key](const Entry& entry) { return entry.key == key; });
}

}  // namespace assay
