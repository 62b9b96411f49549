#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace assay {

/// Text safe to print: control characters, and bytes that are no UTF-8, shown as "\x1B". Names that
/// come from files pass through here before they reach a terminal.
std::string Printable(std::string_view text);

/// Characters of UTF-8 text, which is how wide Assay's own text stands on a terminal.
size_t DisplayWidth(std::string_view text);

/// The end of `text` after "…", so that it is at most `width` wide: the telling end of a tensor
/// name stays. Requires width ≥ 1.
std::string ShortenLeft(const std::string& text, size_t width);

/// The start of `text` before "…". Requires width ≥ 1.
std::string ShortenRight(const std::string& text, size_t width);

/// Breaks lines wider than `width` at spaces; what follows stands two columns in. Words longer than
/// a line stay whole. Tables, which fit already, pass unchanged. Requires width ≥ 20.
std::string WrapLines(std::string_view text, size_t width);

/// What a table may use of the terminal it goes to.
struct TableStyle {
  size_t width = 100;
  bool colours = false;
};

enum class Align { kLeft, kRight };
/// Which end of a column's text may go when the table is too wide.
enum class Shorten { kNo, kLeft, kRight };
enum class Emphasis { kNone, kBold, kBad, kGood, kDim };

/// Columns of text with headings. Too wide for the style's width, it first shortens its name
/// columns from the left, then drops columns from the right; it never wraps.
class Table {
 public:
  struct Column {
    std::string heading;
    Align align = Align::kRight;
    Shorten shorten = Shorten::kNo;  ///< kLeft for names, kRight for sentences
  };
  struct Cell {
    Cell(std::string text_in, Emphasis emphasis_in = Emphasis::kNone)
        : text(std::move(text_in)), emphasis(emphasis_in) {}
    Cell(const char* text_in) : text(text_in) {}
    std::string text;
    Emphasis emphasis = Emphasis::kNone;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  /// Missing cells at the end are empty. Requires at most one cell a column. Errors: internal.
  void AddRow(std::vector<Cell> cells);
  /// A line of its own between rows.
  void AddHeading(std::string text);

  /// Lines that end in a newline, none with trailing blanks.
  std::string Render(const TableStyle& style) const;

 private:
  struct Row {
    std::vector<Cell> cells;  // none: a heading
    std::string heading;
  };

  std::vector<size_t> NaturalWidths() const;

  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace assay
