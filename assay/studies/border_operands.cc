#include "assay/studies/border_operands.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "assay/base/checked.h"
#include "assay/base/text.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

/// Runs along the last axis.
int64_t NumRowsOf(const Shape& shape) {
  int64_t rows = 1;
  for (size_t axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
  return rows;
}

size_t RowBytes(const Shape& shape, DType dtype) {
  const int64_t cols = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  return static_cast<size_t>(cols) * static_cast<size_t>(BitsOf(dtype)) / 8;
}

void Copy(std::span<const std::byte> from, std::span<std::byte> to) {
  if (!to.empty()) std::memcpy(to.data(), from.data(), to.size());
}

/// Rows of one part in a joined tensor.
struct JoinedPart {
  ElementSource source;
  int64_t rows = 0;  ///< in each matrix
};

/// Reads the runs of rows that lie side by side in one part.
void ReadJoined(const std::vector<JoinedPart>& parts, int64_t first, int64_t count,
                size_t row_bytes, std::vector<std::byte>& out) {
  int64_t all_rows = 0;
  for (const JoinedPart& part : parts) all_rows += part.rows;
  out.resize(static_cast<size_t>(count) * row_bytes);
  std::vector<std::byte> scratch;
  for (int64_t done = 0; done < count;) {
    const int64_t matrix = (first + done) / all_rows;
    int64_t row = (first + done) % all_rows;
    size_t index = 0;
    while (row >= parts[index].rows) row -= parts[index++].rows;
    const JoinedPart& part = parts[index];
    const int64_t rows = std::min(count - done, part.rows - row);
    Copy(part.source.read(matrix * part.rows + row, rows, scratch),
         std::span(out).subspan(static_cast<size_t>(done) * row_bytes,
                                static_cast<size_t>(rows) * row_bytes));
    done += rows;
  }
}

/// The rows of several operands as one tensor: every operand's share of the first matrix, then of
/// the second, …; when `stacked`, the operands become the entries of a new first axis. Nothing when
/// types or shapes do not go together.
std::optional<Operand> Joined(const std::vector<Operand>& operands, bool stacked) {
  const Operand& first = operands.front();
  const size_t rank = first.shape.rank();
  const int bits = BitsOf(first.dtype);
  if (rank == 0 || rank > (stacked ? 2 : 3) || bits % 8 != 0 || bits == 0) return std::nullopt;
  Operand joined = first;
  joined.num_bytes = 0;
  std::vector<int64_t> dims(first.shape.dims().begin(), first.shape.dims().end());
  const size_t axis = rank == 1 ? 0 : rank - 2;  // the one that grows
  int64_t along = 0;
  for (const Operand& operand : operands) {
    std::vector<int64_t> own(operand.shape.dims().begin(), operand.shape.dims().end());
    if (own.size() != rank || operand.dtype != first.dtype) return std::nullopt;
    const auto sum = CheckedAdd(along, own[axis]);
    if (!stacked) own[axis] = dims[axis];
    if (!sum || own != dims) return std::nullopt;
    along = *sum;
    joined.num_bytes += operand.num_bytes;
    if (operand.stored_as != first.stored_as) joined.stored_as = "mixed";
  }
  if (stacked) {
    dims.insert(dims.begin(), static_cast<int64_t>(operands.size()));
  } else {
    dims[axis] = along;
  }
  joined.shape = Shape(std::move(dims));
  if (!joined.shape.CheckedNumBytes(joined.dtype)) return std::nullopt;
  joined.open = [operands, stacked, shape = joined.shape, dtype = joined.dtype] {
    // A vector is one run: its parts are joined as rows of one element.
    const bool vector = shape.rank() == 1;
    std::vector<JoinedPart> parts;
    for (const Operand& operand : operands) {
      const Shape& own = operand.shape;
      const int64_t rows = vector ? 1 : stacked ? NumRowsOf(own) : own[own.rank() - 2];
      parts.push_back({operand.open(), rows});
    }
    ElementSource source{dtype, shape, {}};
    if (vector) {
      source.read = [parts, dtype](int64_t, int64_t, std::vector<std::byte>& out) {
        out.clear();
        std::vector<std::byte> scratch;
        for (const JoinedPart& part : parts) {
          const auto bytes = part.source.read(0, 1, scratch);
          const size_t size = RowBytes(part.source.shape, dtype);
          out.insert(out.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
        }
        return std::span<const std::byte>(out);
      };
      return source;
    }
    // Matrices of a stack that is made here follow one another; of one that was there they mix.
    source.read = [parts, row_bytes = RowBytes(shape, dtype)](
                      int64_t row, int64_t count,
                      std::vector<std::byte>& out) -> std::span<const std::byte> {
      ReadJoined(parts, row, count, row_bytes, out);
      return out;
    };
    return source;
  };
  return joined;
}

/// Row r of the result is row PermutedRow(r) of `operand`; of a vector its elements.
Operand Unpermuted(Operand operand, int64_t heads) {
  operand.open = [heads, open = std::move(operand.open)] {
    ElementSource inner = open();
    ElementSource source{inner.dtype, inner.shape, {}};
    const int64_t rows = inner.shape[0];
    const bool vector = inner.shape.rank() == 1;
    const size_t size =
        vector ? static_cast<size_t>(BitsOf(inner.dtype)) / 8 : RowBytes(inner.shape, inner.dtype);
    source.read = [inner = std::move(inner), rows, heads, vector, size](
                      int64_t first, int64_t count,
                      std::vector<std::byte>& out) -> std::span<const std::byte> {
      std::vector<std::byte> scratch;
      const int64_t num_items = vector ? rows : count;
      out.resize(static_cast<size_t>(num_items) * size);
      std::span<const std::byte> whole;
      if (vector) whole = inner.read(0, 1, scratch);
      for (int64_t i = 0; i < num_items; ++i) {
        const int64_t other = PermutedRow((vector ? 0 : first) + i, rows, heads);
        const auto item = vector ? whole.subspan(static_cast<size_t>(other) * size)
                                 : inner.read(other, 1, scratch);
        Copy(item, std::span(out).subspan(static_cast<size_t>(i) * size, size));
      }
      return out;
    };
    return source;
  };
  return operand;
}

Operand OneAdded(Operand operand) {
  const DType stored = operand.dtype;
  operand.dtype = DType::kF32;
  operand.open = [stored, open = std::move(operand.open)] {
    ElementSource inner = open();
    ElementSource source{DType::kF32, inner.shape, {}};
    const auto cols =
        static_cast<size_t>(inner.shape.rank() == 0 ? 1 : inner.shape[inner.shape.rank() - 1]);
    source.read = [inner = std::move(inner), cols, stored](
                      int64_t first, int64_t count,
                      std::vector<std::byte>& out) -> std::span<const std::byte> {
      std::vector<std::byte> scratch;
      std::vector<float> values(static_cast<size_t>(count) * cols);
      Widen(ElementOf(stored), inner.read(first, count, scratch), values);
      for (float& value : values) value += 1.0F;
      if (stored == DType::kF16) {
        scratch.resize(values.size() * 2);
        Round(Element::kF16, values, scratch);
        Widen(Element::kF16, scratch, values);
      }
      out.resize(values.size() * sizeof(float));
      Copy(std::as_bytes(std::span(values)), out);
      return out;
    };
    return source;
  };
  return operand;
}

/// Of a stack its first matrix; nothing for higher ranks and types that are no floats.
std::optional<BorderMatrix> MatrixOf(const Operand& operand) {
  constexpr int64_t kMostElements = int64_t{1} << 24;  // of a vector, held in memory
  const size_t rank = operand.shape.rank();
  if (rank == 0 || rank > 3 || !WidensToFloat(operand.dtype) || BitsOf(operand.dtype) % 8 != 0) {
    return std::nullopt;
  }
  if (rank == 1) {
    const int64_t count = operand.shape[0];
    if (count > kMostElements) return std::nullopt;
    std::vector<std::byte> scratch;
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(count));
    const ElementSource source = operand.open();
    if (count > 0) Widen(ElementOf(operand.dtype), source.read(0, 1, scratch), *values);
    return BorderMatrix{count, 1, [values](int64_t first, int64_t rows, std::span<float> out) {
                          std::copy_n(values->begin() + first, rows, out.begin());
                        }};
  }
  return BorderMatrix{operand.shape[rank - 2], operand.shape[rank - 1],
                      [source = operand.open()](int64_t first, int64_t rows, std::span<float> out) {
                        std::vector<std::byte> scratch;
                        Widen(ElementOf(source.dtype), source.read(first, rows, scratch), out);
                      }};
}

/// Floats of whole bytes: what conversions can be undone for.
bool IsConvertible(const Operand& operand) {
  return operand.shape.rank() > 0 && WidensToFloat(operand.dtype) && BitsOf(operand.dtype) % 8 == 0;
}

/// `stacked`: a single expert makes a stack too.
std::optional<Operand> OneOf(const std::vector<Operand>& parts, bool stacked) {
  return parts.size() == 1 && !stacked ? parts.front() : Joined(parts, stacked);
}

/// Operands of all `names`; fewer when one is not there.
std::vector<Operand> OperandsAt(const std::map<std::string, Operand>& operands,
                                const std::vector<std::string>& names) {
  std::vector<Operand> found;
  for (const std::string& name : names) {
    const auto entry = operands.find(name);
    if (entry != operands.end()) found.push_back(entry->second);
  }
  return found;
}

void Replace(std::map<std::string, Operand>& operands, const std::vector<std::string>& names,
             const std::string& shown, const Operand& operand) {
  for (const std::string& name : names) operands.erase(name);
  operands[shown] = operand;
}

}  // namespace

std::vector<Crossing> CrossBorder(const Border& border, std::map<std::string, Operand>& a,
                                  std::map<std::string, Operand>& b,
                                  const std::function<bool(const std::string&)>& is_renamed,
                                  std::vector<std::string>& notes) {
  auto& in_folder = border.gguf_is_a() ? b : a;
  auto& in_file = border.gguf_is_a() ? a : b;
  std::vector<Crossing> crossings;
  for (const BorderPair& pair : border.pairs()) {
    std::vector<std::string> file_names;
    for (const BorderPart& part : pair.gguf) file_names.push_back(part.name);
    const std::vector<std::string>& names_in_a = border.gguf_is_a() ? file_names : pair.folder;
    if (std::ranges::any_of(names_in_a, is_renamed)) continue;
    const std::vector<Operand> folder = OperandsAt(in_folder, pair.folder);
    const std::vector<Operand> file = OperandsAt(in_file, file_names);
    if (folder.size() < pair.folder.size() || file.size() < file_names.size()) continue;

    const bool converts = pair.norm_plus_one || pair.Has(BorderConversion::kPermutedHeads);
    std::optional<Operand> folder_one;
    std::optional<Operand> file_one;
    std::optional<Operand> folder_raw = OneOf(folder, pair.Has(BorderConversion::kStackedExperts));
    std::optional<Operand> file_raw = OneOf(file, false);
    if (folder_raw && file_raw &&
        (!converts || (IsConvertible(*folder_raw) && IsConvertible(*file_raw)))) {
      folder_one = pair.norm_plus_one ? OneAdded(*folder_raw) : *folder_raw;
      std::vector<Operand> undone = file;
      for (size_t i = 0; i < undone.size(); ++i) {
        const int64_t heads = pair.gguf[i].heads;
        if (heads > 0) undone[i] = Unpermuted(undone[i], heads);
      }
      file_one = OneOf(undone, false);
    }
    if (!folder_one || !file_one) {
      notes.push_back(fmt::format("{} and {}: their tensors do not go together; left alone",
                                  Quoted(pair.folder_name), Quoted(pair.gguf_name)));
      continue;
    }
    Replace(in_folder, pair.folder, pair.folder_name, *folder_one);
    Replace(in_file, file_names, pair.gguf_name, *file_one);
    crossings.push_back({&pair, border.gguf_is_a() ? pair.gguf_name : pair.folder_name,
                         border.gguf_is_a() ? pair.folder_name : pair.gguf_name,
                         std::move(*folder_raw), std::move(*file_raw)});
  }
  return crossings;
}

std::string FitsOnly(const Border& border, const Crossing& crossing) {
  // What would be expected of joined rows is no single transformation.
  if (crossing.pair->Has(BorderConversion::kJoinedRows)) return {};
  const auto folder = MatrixOf(crossing.folder);
  const auto file = MatrixOf(crossing.file);
  if (!folder || !file) return {};
  const auto found = FindTransformation(*folder, *file, crossing.pair->Expected());
  return found ? border.Unexpected(*crossing.pair, *found) : std::string();
}

}  // namespace assay
