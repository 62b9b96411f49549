#include "assay/checkpoint/json_text.h"

#include <set>
#include <vector>

#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

std::string JsonFault(size_t position, std::string_view parser_message) {
  // "[json.exception.parse_error.101] parse error at line 1, column 58: syntax error while parsing
  // object key - unexpected '}'; expected string literal; last read: '…'"
  for (const std::string_view before : {"[json.exception", "parse error at"}) {
    if (!parser_message.starts_with(before)) continue;
    const std::string_view after = before.front() == '[' ? "] " : ": ";
    const size_t end = parser_message.find(after);
    if (end != std::string_view::npos) parser_message.remove_prefix(end + 2);
  }
  constexpr size_t kMaxMessageBytes = 160;
  std::string message;
  for (const char c : parser_message.substr(0, kMaxMessageBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    message += byte < 0x20 || byte >= 0x7F ? '?' : c;
  }
  return fmt::format("not valid JSON at byte {}: {}", Grouped(uint64_t{position}), message);
}

nlohmann::json ParseJsonObject(std::string_view text, std::string_view where) {
  if (const auto invalid = FirstInvalidUtf8(text)) {
    ThrowInput("{}: not valid UTF-8 at byte {}", where, Grouped(uint64_t{*invalid}));
  }
  if (const size_t nul = text.find('\0'); nul != std::string_view::npos) {
    ThrowInput("{}: not valid JSON: NUL at byte {}", where, Grouped(uint64_t{nul}));
  }
  std::vector<std::set<std::string>> keys;
  const auto check = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (depth > kMaxDepth) ThrowInput("{}: JSON nested deeper than {}", where, kMaxDepth);
    if (event == Event::object_start) {
      keys.emplace_back();
    } else if (event == Event::object_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const auto& name = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(name).second) {
        ThrowInput("{}: JSON: duplicate key {}", where, Quoted(name));
      }
    }
    return true;
  };
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(text.begin(), text.end(), check);
  } catch (const nlohmann::json::parse_error& error) {
    ThrowInput("{}: {}", where, JsonFault(error.byte, error.what()));
  } catch (const nlohmann::json::exception& error) {
    ThrowInput("{}: {}", where, JsonFault(text.size(), error.what()));  // a number out of range
  }
  if (!value.is_object()) {
    ThrowInput("{}: JSON: expected an object, found {}", where, value.type_name());
  }
  return value;
}

}  // namespace assay
