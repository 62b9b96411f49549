#include "assay/checkpoint/npy_header.h"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/text.h"

namespace assay {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
// numpy refuses above 10,000 unless asked; long enough for anything but an attack on the parser.
constexpr size_t kMaxHeaderBytes = size_t{1} << 20;

struct NpyType {
  std::string_view descr;
  DType dtype;
};

constexpr std::array kNpyTypes = {
    NpyType{"<f4", DType::kF32},  NpyType{"<f2", DType::kF16}, NpyType{"<f8", DType::kF64},
    NpyType{"|b1", DType::kBool}, NpyType{"|i1", DType::kI8},  NpyType{"<i2", DType::kI16},
    NpyType{"<i4", DType::kI32},  NpyType{"<i8", DType::kI64}, NpyType{"|u1", DType::kU8},
    NpyType{"<u2", DType::kU16},  NpyType{"<u4", DType::kU32}, NpyType{"<u8", DType::kU64},
};

// The dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
class DictReader {
 public:
  DictReader(std::string_view text, std::string_view path) : text_(text), path_(path) {}

  NpyHeader Read() {
    Require('{', "a dictionary");
    while (!Take('}')) {
      Entry();
      if (!Take(',')) {
        Require('}', "',' or '}' after a value");
        break;
      }
    }
    SkipSpaces();
    while (position_ < text_.size() && (Peek() == '\n' || Peek() == ' ')) ++position_;
    if (position_ < text_.size()) Fail("text after the dictionary");
    if (!has_descr_) Fail("key 'descr' is missing");
    if (!has_order_) Fail("key 'fortran_order' is missing");
    if (!has_shape_) Fail("key 'shape' is missing");
    return std::move(header_);
  }

 private:
  template <typename... Args>
  [[noreturn]] void Fail(fmt::format_string<Args...> format, Args&&... args) const {
    ThrowInput("{}: header: {} (at character {})", path_,
               fmt::format(format, std::forward<Args>(args)...), position_);
  }

  // '\0' at the end: a NUL is no token, so it fails like the end does.
  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  void SkipSpaces() {
    while (Peek() == ' ') ++position_;
  }

  bool Take(char wanted) {
    SkipSpaces();
    if (position_ >= text_.size() || Peek() != wanted) return false;
    ++position_;
    return true;
  }

  void Require(char wanted, std::string_view what) {
    if (!Take(wanted)) Fail("expected {}, found {}", what, Found());
  }

  std::string Found() const {
    return position_ < text_.size() ? Quoted(text_.substr(position_, 1)) : "the end of the header";
  }

  std::string_view String(std::string_view what) {
    SkipSpaces();
    const char quote = Peek();
    if (quote != '\'' && quote != '"') Fail("expected {}, found {}", what, Found());
    const size_t begin = ++position_;
    while (Peek() != quote) {
      if (position_ >= text_.size()) Fail("{} does not end", what);
      if (Peek() == '\\') Fail("escapes are not read in {}", what);
      ++position_;
    }
    return text_.substr(begin, position_++ - begin);
  }

  void Entry() {
    const std::string_view key = String("a key in quotes");
    Require(':', "':' after a key");
    SkipSpaces();
    if (key == "descr") {
      Once(has_descr_, key);
      Descr();
    } else if (key == "fortran_order") {
      Once(has_order_, key);
      Order();
    } else if (key == "shape") {
      Once(has_shape_, key);
      ReadShape();
    } else {
      Fail("unknown key {}; expected descr, fortran_order and shape", Quoted(key));
    }
  }

  void Once(bool& seen, std::string_view key) {
    if (seen) Fail("duplicate key {}", Quoted(key));
    seen = true;
  }

  void Descr() {
    if (Peek() == '[') Fail("descr: structured types are not read");
    if (Peek() == '(') Fail("descr: a tuple (sub-array type) is not read");
    const std::string_view descr = String("a string for descr");
    for (const NpyType& type : kNpyTypes) {
      if (type.descr == descr) {
        header_.dtype = type.dtype;
        return;
      }
    }
    std::string_view reason = "";
    if (descr.starts_with('>')) {
      reason = " (big-endian); save it with .astype of the '<' type";
    } else if (descr.ends_with("O")) {
      reason = " (pickled objects)";
    } else if (descr == "<V2" || descr == "|V2" || descr == "<V1" || descr == "|V1") {
      reason = " (bf16 and fp8 arrays lose their type here); safetensors keeps it";
    } else if (descr == "<c8" || descr == "<c16") {
      reason = " (complex)";
    }
    Fail("descr: dtype {} is not read{}", Quoted(descr), reason);
  }

  void Order() {
    if (TakeWord("True")) {
      header_.fortran_order = true;
    } else if (!TakeWord("False")) {
      Fail("fortran_order: expected True or False, found {}", Found());
    }
  }

  bool TakeWord(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  void ReadShape() {
    if (Peek() != '(') Fail("shape: expected a tuple of integers, found {}", Found());
    ++position_;
    std::vector<int64_t> dims;
    bool comma = true;
    while (!Take(')')) {
      if (!comma) Fail("shape: expected ',' or ')', found {}", Found());
      if (dims.size() == Shape::kMaxRank) Fail("shape: the rank is above {}", Shape::kMaxRank);
      dims.push_back(Integer());
      comma = Take(',');
    }
    if (dims.size() == 1 && !comma) Fail("shape: ({}) is an integer, not a tuple", dims[0]);
    header_.shape = Shape(std::move(dims));
  }

  int64_t Integer() {
    SkipSpaces();
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    if (Peek() == '-') Fail("shape: negative dimension");
    if (!is_digit(Peek())) Fail("shape: expected an integer, found {}", Found());
    const bool leading_zero = Peek() == '0';
    int64_t value = 0;
    size_t num_digits = 0;
    for (; is_digit(Peek()); ++position_, ++num_digits) {
      const auto scaled = CheckedMul(value, int64_t{10});
      const auto next = scaled ? CheckedAdd(*scaled, int64_t{Peek() - '0'}) : std::nullopt;
      if (!next) Fail("shape: a dimension is too large for 63 bits, out of range");
      value = *next;
    }
    if (leading_zero && num_digits > 1) Fail("shape: leading zero in an integer");
    if (Peek() == 'L') ++position_;  // long integers of Python 2, in old files
    return value;
  }

  std::string_view text_;
  std::string_view path_;
  size_t position_ = 0;
  NpyHeader header_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

}  // namespace

bool HasNpyMagic(std::string_view file) noexcept { return file.starts_with(kMagic); }

NpyHeader ReadNpyHeader(std::span<const std::byte> bytes, std::string_view path) {
  const std::string_view file = AsText(bytes);
  if (!HasNpyMagic(file)) {
    ThrowInput("{}: not an npy file: expected the magic \\x93NUMPY, found {}{}", path,
               Quoted(file.substr(0, kMagic.size())),
               file.starts_with("PK") ? " (a zip file; npz is not read)" : "");
  }
  const size_t version_end = kMagic.size() + 2;
  if (file.size() < version_end) ThrowInput("{}: too short: no version after the magic", path);
  const auto at = [&](size_t index) { return std::to_integer<unsigned>(bytes[index]); };
  const unsigned major = at(kMagic.size());
  const unsigned minor = at(kMagic.size() + 1);
  if (major < 1 || major > 3 || minor != 0) {
    ThrowInput("{}: version {}.{}: expected 1.0, 2.0 or 3.0", path, major, minor);
  }
  const size_t length_bytes = major == 1 ? 2 : 4;
  const size_t header_begin = version_end + length_bytes;
  if (file.size() < header_begin) ThrowInput("{}: too short: no header length", path);
  size_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) length = length << 8 | at(version_end + i);
  if (length > file.size() - header_begin) {
    ThrowInput("{}: header: truncated: expected {} bytes, found {}", path,
               Grouped(uint64_t{length}), Grouped(uint64_t{file.size() - header_begin}));
  }
  if (length > kMaxHeaderBytes) {
    ThrowInput("{}: header: its length of {} bytes is above the limit of {}", path,
               Grouped(uint64_t{length}), Grouped(uint64_t{kMaxHeaderBytes}));
  }
  NpyHeader header = DictReader(file.substr(header_begin, length), path).Read();
  header.data_offset = static_cast<int64_t>(header_begin + length);
  const auto num_bytes = header.shape.CheckedNumBytes(header.dtype);
  if (!num_bytes) {
    ThrowInput("{}: shape {} of {} is too large: its size overflows 64 bits", path,
               header.shape.ToString(), NameOf(header.dtype));
  }
  const int64_t found = static_cast<int64_t>(file.size()) - header.data_offset;
  if (*num_bytes > found) {
    ThrowInput("{}: truncated: {} {} takes {} bytes, found {}; is the copy complete?", path,
               NameOf(header.dtype), header.shape.ToString(), Grouped(*num_bytes), Grouped(found));
  }
  return header;
}

}  // namespace assay
