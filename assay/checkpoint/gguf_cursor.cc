#include "assay/checkpoint/gguf_cursor.h"

#include "assay/base/text.h"

namespace assay {

void GgufCursor::Enter(std::string_view item, uint64_t index) {
  item_ = item;
  index_ = index + 1;
  name_ = {};
  after_.clear();
}

void GgufCursor::Follows(std::string_view item, uint64_t count) {
  if (count > 0) after_ = fmt::format(" (after {} {})", item, Grouped(count));
}

void GgufCursor::Throw(uint64_t at, const std::string& what) const {
  std::string where(item_);
  if (index_ > 0) where += fmt::format(" {}", Grouped(index_));
  if (!name_.empty()) where += fmt::format(" {}", Quoted(name_));
  where += after_;
  ThrowInput("{}: byte {}: {}: {}", path_, Grouped(at), where, what);
}

std::span<const std::byte> GgufCursor::ReadBytes(uint64_t count, std::string_view field) {
  if (count > num_left()) {
    Refuse(position_, "{}: truncated: expected {} bytes, found {}; is the download complete?",
           field, Grouped(count), Grouped(num_left()));
  }
  const auto bytes = file_.subspan(static_cast<size_t>(position_), static_cast<size_t>(count));
  position_ += count;
  return bytes;
}

std::string_view GgufCursor::ReadString(std::string_view field) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 30;
  const uint64_t at = position_;
  const auto length = Read<uint64_t>(field);
  if (length > kMaxBytes) {
    Refuse(at, "{}: its length of {} bytes is above the limit of {}", field, Grouped(length),
           Grouped(kMaxBytes));
  }
  if (length > num_left()) {
    Refuse(at, "{}: truncated: its length is {} bytes, but {} follow; is the download complete?",
           field, Grouped(length), Grouped(num_left()));
  }
  return AsText(ReadBytes(length, field));
}

}  // namespace assay
