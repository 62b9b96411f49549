#include "assay/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "assay/base/error.h"

namespace assay {
namespace {

constexpr size_t kGap = 2;        // blanks between columns
constexpr size_t kShortest = 20;  // text is not shortened below this

std::string_view ColourOf(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::kNone:
      return "";
    case Emphasis::kBold:
      return "\x1b[1m";
    case Emphasis::kBad:
      return "\x1b[31m";
    case Emphasis::kGood:
      return "\x1b[32m";
    case Emphasis::kDim:
      return "\x1b[2m";
  }
  return "";
}

// Bytes of the well-formed UTF-8 character at the start of `text`; 0 when there is none.
size_t CharacterBytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0) ||
      (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90)) {
    return 0;
  }
  return size;
}

// Control characters, and those that reorder or hide text.
bool IsUnsafe(std::string_view character) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7F;
  if (character.size() == 2) return byte(0) == 0xC2 && byte(1) < 0xA0;
  if (character.size() == 3 && byte(0) == 0xE2) {
    // U+200B … U+200F, U+2028 … U+202E, U+2066 … U+2069
    return (byte(1) == 0x80 &&
            ((byte(2) >= 0x8B && byte(2) <= 0x8F) || (byte(2) >= 0xA8 && byte(2) <= 0xAE))) ||
           (byte(1) == 0x81 && byte(2) >= 0xA6 && byte(2) <= 0xA9);
  }
  return false;
}

void AppendPadded(std::string& line, const std::string& text, size_t width, Align align,
                  std::string_view colour) {
  const size_t blanks = width - std::min(width, DisplayWidth(text));
  if (align == Align::kRight) line.append(blanks, ' ');
  if (!colour.empty() && !text.empty()) {
    line.append(colour).append(text).append("\x1b[0m");
  } else {
    line += text;
  }
  if (align == Align::kLeft) line.append(blanks, ' ');
}

void EndLine(std::string& out, std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out.append(line).append("\n");
  line.clear();
}

}  // namespace

std::string Printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = CharacterBytes(text);
    const std::string_view character = text.substr(0, std::max<size_t>(size, 1));
    if (size == 0 || IsUnsafe(character)) {
      for (const char c : character) out += fmt::format("\\x{:02X}", static_cast<uint8_t>(c));
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string WrapLines(std::string_view text, size_t width) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    std::string indent;
    while (indent.size() + DisplayWidth(line) > width) {
      size_t space = std::string_view::npos;
      for (size_t at = line.find(' '); at != std::string_view::npos; at = line.find(' ', at + 1)) {
        if (at > 0 && indent.size() + DisplayWidth(line.substr(0, at)) <= width) space = at;
      }
      if (space == std::string_view::npos) break;
      out += indent;
      out += line.substr(0, space);
      out += '\n';
      line.remove_prefix(space + 1);
      indent = "  ";
    }
    out += indent;
    out += line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string ShortenLeft(const std::string& text, size_t width) {
  size_t excess = DisplayWidth(text);
  if (excess <= width) return text;
  excess -= width - 1;
  size_t first = 0;
  for (; excess > 0; --excess) {
    ++first;
    while (first < text.size() && (static_cast<uint8_t>(text[first]) & 0xC0) == 0x80) ++first;
  }
  return "…" + text.substr(first);
}

std::string ShortenRight(const std::string& text, size_t width) {
  if (DisplayWidth(text) <= width) return text;
  size_t end = 0;
  for (size_t kept = 0; kept + 1 < width; ++kept) {
    ++end;
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
  }
  return text.substr(0, end) + "…";
}

void Table::AddRow(std::vector<Cell> cells) {
  if (cells.size() > columns_.size()) {
    ThrowInternal("table: {} cells in {} columns", cells.size(), columns_.size());
  }
  for (Cell& cell : cells) cell.text = Printable(cell.text);
  cells.resize(columns_.size(), Cell(""));
  rows_.push_back({std::move(cells), {}});
}

void Table::AddHeading(std::string text) { rows_.push_back({{}, Printable(text)}); }

std::vector<size_t> Table::NaturalWidths() const {
  std::vector<size_t> widths;
  for (const Column& column : columns_) widths.push_back(DisplayWidth(column.heading));
  for (const Row& row : rows_) {
    for (size_t i = 0; i < row.cells.size(); ++i) {
      widths[i] = std::max(widths[i], DisplayWidth(row.cells[i].text));
    }
  }
  return widths;
}

std::string Table::Render(const TableStyle& style) const {
  const std::vector<size_t> natural = NaturalWidths();
  std::vector<size_t> widths = natural;
  const auto total = [](const std::vector<size_t>& columns) {
    return std::accumulate(columns.begin(), columns.end(), size_t{0}) +
           (columns.empty() ? 0 : kGap * (columns.size() - 1));
  };
  const auto shorten = [&](std::vector<size_t> columns) {
    for (size_t i = columns.size(); i-- > 0 && total(columns) > style.width;) {
      if (columns_[i].shorten == Shorten::kNo) continue;
      const size_t excess = total(columns) - style.width;
      const size_t least = std::min(columns[i], kShortest);
      columns[i] = columns[i] > least + excess ? columns[i] - excess : least;
    }
    return columns;
  };
  size_t shown = columns_.size();
  widths = shorten(natural);
  while (shown > 1 && total(widths) > style.width) {
    --shown;
    widths = shorten({natural.begin(), natural.begin() + static_cast<std::ptrdiff_t>(shown)});
  }

  std::string out;
  std::string line;
  for (size_t i = 0; i < shown; ++i) {
    if (i > 0) line.append(kGap, ' ');
    AppendPadded(line, columns_[i].heading, widths[i], columns_[i].align,
                 style.colours ? ColourOf(Emphasis::kDim) : "");
  }
  EndLine(out, line);
  for (const Row& row : rows_) {
    if (row.cells.empty()) {
      AppendPadded(line, ShortenRight(row.heading, std::max<size_t>(style.width, 1)), 0,
                   Align::kLeft, style.colours ? ColourOf(Emphasis::kBold) : "");
      EndLine(out, line);
      continue;
    }
    for (size_t i = 0; i < shown; ++i) {
      if (i > 0) line.append(kGap, ' ');
      const Cell& cell = row.cells[i];
      const size_t width = std::max<size_t>(widths[i], 1);
      const std::string text = columns_[i].shorten == Shorten::kRight
                                   ? ShortenRight(cell.text, width)
                                   : ShortenLeft(cell.text, width);
      AppendPadded(line, text, widths[i], columns_[i].align,
                   style.colours ? ColourOf(cell.emphasis) : "");
    }
    EndLine(out, line);
  }
  return out;
}

}  // namespace assay
