#include "assay/studies/tensor_difference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "assay/base/checked.h"
#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/studies/difference_pattern.h"
#include "assay/studies/difference_sums.h"
#include "assay/studies/widen_values.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

/// Elements looked at in one go; a multiple of 8, so that pieces of packed types start on bytes.
constexpr int64_t kPiece = 16 * ErrorSums::kChunk;

/// Buffers of one thread.
struct Scratch {
  std::vector<std::byte> a_bytes;
  std::vector<std::byte> b_bytes;
  std::vector<double> a_wide;
  std::vector<double> b_wide;
  std::vector<float> a_values;
  std::vector<float> b_values;
  std::vector<int64_t> a_places;
  std::vector<int64_t> b_places;
  std::vector<uint8_t> differs;
};

class Comparison {
 public:
  Comparison(const ElementSource& a, const ElementSource& b)
      : a_(a),
        b_(b),
        dtype_(CommonType(a.dtype, b.dtype)),
        same_type_(a.dtype == b.dtype),
        in_float_(WidensToFloat(dtype_)),
        grid_(GridOf(b.shape, std::gcd(BitsOf(a.dtype), BitsOf(b.dtype)))) {
    if (grid_.has_rows) rows_.resize(static_cast<size_t>(grid_.rows));
    row_counts_.resize(static_cast<size_t>(grid_.rows));
    if (grid_.cols <= kMaxCounted) column_counts_.resize(static_cast<size_t>(grid_.cols));
  }

  void Run() {
    if (grid_.rows == 0 || grid_.cols == 0) return;
    if (grid_.has_rows && grid_.cols <= kPiece) return RunByRows();
    Scratch scratch;
    for (int64_t row = 0; row < grid_.rows; ++row) RunWithinRow(row, scratch);
  }

  TensorDifference Result(int num_worst_rows) const {
    TensorDifference result;
    result.shape = b_.shape;
    result.dtype = dtype_;
    result.num_elements = grid_.rows * grid_.cols;
    result.stats = total_.errors.Stats();
    result.num_equal_bits = total_.num_equal_bits;
    result.num_equal_values = total_.num_equal_values;
    result.num_sign_flips = total_.num_sign_flips;
    result.num_nonfinite_mismatches = total_.num_nonfinite_mismatches;
    result.reference_max_abs = total_.reference_max_abs;
    if (same_type_) {
      result.ulp = total_.ulp;
      result.reference_max_ulp = total_.reference_max_ulp;
    }
    if (total_.first_difference >= 0) {
      result.first_difference = total_.first_difference;
      result.first_index = IndexOf(total_.first_difference);
      result.pattern = DescribeDifferences(row_counts_, column_counts_);
    }
    if (grid_.has_rows) result.worst_rows = WorstRows(num_worst_rows);
    return result;
  }

 private:
  /// Groups of whole rows, one piece each, on all threads.
  void RunByRows() {
    const int64_t rows_per_piece = RowsPerChunk(grid_.cols, kPiece);
    std::vector<DifferenceSums> parts(static_cast<size_t>(CeilDiv(grid_.rows, rows_per_piece)));
    ParallelFor(0, grid_.rows, rows_per_piece, [&](int64_t first, int64_t last) {
      Scratch scratch;
      const auto a = a_.read(first, last - first, scratch.a_bytes);
      const auto b = b_.read(first, last - first, scratch.b_bytes);
      DifferenceSums& part = parts[static_cast<size_t>(first / rows_per_piece)];
      MeasurePiece(a, b, first * grid_.cols, (last - first) * grid_.cols, scratch, part);
      for (int64_t row = first; row < last; ++row) {
        MeasureRow(static_cast<size_t>((row - first) * grid_.cols), grid_.cols, scratch,
                   rows_[static_cast<size_t>(row)]);
      }
    });
    for (const DifferenceSums& part : parts) total_.Merge(part);
  }

  /// One long row in pieces, on all threads.
  void RunWithinRow(int64_t row, Scratch& outer) {
    // A tensor walked as one run is read whole, whatever its rows are.
    const int64_t count = grid_.has_rows ? 1 : NumRowsOf(b_.shape);
    const auto a = a_.read(row, count, outer.a_bytes);
    const auto b = b_.read(row, count, outer.b_bytes);
    const auto num_pieces = static_cast<size_t>(CeilDiv(grid_.cols, kPiece));
    std::vector<DifferenceSums> parts(num_pieces);
    std::vector<RowSums> row_parts(num_pieces);
    ParallelFor(0, grid_.cols, kPiece, [&](int64_t first, int64_t last) {
      Scratch scratch;
      const auto bytes_from = [&](std::span<const std::byte> bytes, DType dtype) {
        return bytes.subspan(static_cast<size_t>(first) * static_cast<size_t>(BitsOf(dtype)) / 8);
      };
      const auto piece = static_cast<size_t>(first / kPiece);
      MeasurePiece(bytes_from(a, a_.dtype), bytes_from(b, b_.dtype), row * grid_.cols + first,
                   last - first, scratch, parts[piece]);
      if (grid_.has_rows) MeasureRow(0, last - first, scratch, row_parts[piece]);
    });
    for (const DifferenceSums& part : parts) total_.Merge(part);
    if (!grid_.has_rows) return;
    RowSums& sums = rows_[static_cast<size_t>(row)];
    for (const RowSums& part : row_parts) {
      sums.d2 += part.d2;
      sums.b2 += part.b2;
      sums.max_abs = std::max(sums.max_abs, part.max_abs);
      sums.num_differing += part.num_differing;
    }
  }

  static int64_t NumRowsOf(const Shape& shape) {
    int64_t rows = 1;
    for (size_t axis = 0; axis + 1 < shape.rank(); ++axis) rows *= shape[axis];
    return rows;
  }

  /// Widens both sides into scratch: as f32 where that is exact, else as f64.
  void ReadValues(std::span<const std::byte>& a, std::span<const std::byte>& b, size_t count,
                  Scratch& scratch) const {
    if (in_float_) {
      scratch.a_values.resize(count);
      scratch.b_values.resize(count);
      Widen(ElementOf(a_.dtype), a, scratch.a_values);
      Widen(ElementOf(b_.dtype), b, scratch.b_values);
      if (!same_type_) {
        a = std::as_bytes(std::span(scratch.a_values));
        b = std::as_bytes(std::span(scratch.b_values));
      }
      return;
    }
    scratch.a_wide.resize(count);
    scratch.b_wide.resize(count);
    WidenToDouble(a_.dtype, a, scratch.a_wide);
    WidenToDouble(b_.dtype, b, scratch.b_wide);
    if (!same_type_) {
      a = std::as_bytes(std::span(scratch.a_wide));
      b = std::as_bytes(std::span(scratch.b_wide));
    }
  }

  void MeasurePiece(std::span<const std::byte> a, std::span<const std::byte> b, int64_t position,
                    int64_t num_elements, Scratch& scratch, DifferenceSums& sums) {
    const auto count = static_cast<size_t>(num_elements);
    ReadValues(a, b, count, scratch);
    if (in_float_) {
      sums.errors.Add(scratch.a_values, scratch.b_values);
      NoteMagnitudes<float>(scratch.a_values, scratch.b_values, sums);
    } else {
      sums.errors.Add(scratch.a_wide, scratch.b_wide);
      NoteMagnitudes<double>(scratch.a_wide, scratch.b_wide, sums);
    }
    scratch.a_places.resize(count);
    scratch.b_places.resize(count);
    scratch.differs.assign(count, 0);
    UlpOrder(dtype_, a, 0, scratch.a_places);
    UlpOrder(dtype_, b, 0, scratch.b_places);
    sums.ulp.Add(scratch.a_places, scratch.b_places);
    MarkDifferences(BitsOf(dtype_), a, b, scratch.differs);
    const bool has_sign = HasSign(dtype_);
    for (size_t i = 0; i < count; ++i) {
      const int64_t a_place = scratch.a_places[i];
      const int64_t b_place = scratch.b_places[i];
      sums.num_equal_values += a_place == b_place ? 1 : 0;
      sums.num_equal_bits += scratch.differs[i] == 0 ? 1 : 0;
      if (b_place != kUnordered) {
        sums.reference_max_ulp = std::max(sums.reference_max_ulp, UlpDistance(b_place, 0));
        if (has_sign && a_place != kUnordered &&
            ((a_place < 0 && b_place > 0) || (a_place > 0 && b_place < 0))) {
          ++sums.num_sign_flips;
        }
      }
    }
    if (sums.num_equal_bits < num_elements) NoteDifferences(position, scratch.differs, sums);
  }

  template <typename Value>
  static void NoteMagnitudes(std::span<const Value> a, std::span<const Value> b,
                             DifferenceSums& sums) {
    double largest = sums.reference_max_abs;
    int64_t mismatches = 0;
    for (size_t i = 0; i < b.size(); ++i) {
      const double magnitude = std::abs(static_cast<double>(b[i]));
      if (magnitude > largest) largest = magnitude;
      const bool finite = a[i] - a[i] == 0 && b[i] - b[i] == 0;
      if (!finite && a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) ++mismatches;
    }
    sums.reference_max_abs = largest;
    sums.num_nonfinite_mismatches += mismatches;
  }

  void NoteDifferences(int64_t position, std::span<const uint8_t> differs, DifferenceSums& sums) {
    const auto first = std::ranges::find(differs, uint8_t{1});
    sums.first_difference = position + (first - differs.begin());
    // Whole numbers: the order in which threads add them does not show.
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < differs.size(); ++i) {
      if (differs[i] == 0) continue;
      const int64_t index = position + static_cast<int64_t>(i);
      ++row_counts_[static_cast<size_t>(index / grid_.cols)];
      if (!column_counts_.empty()) ++column_counts_[static_cast<size_t>(index % grid_.cols)];
    }
  }

  void MeasureRow(size_t offset, int64_t num_elements, const Scratch& scratch,
                  RowSums& sums) const {
    const auto add = [&](double a, double b) {
      const double d = a - b;
      if (!std::isfinite(d)) return;
      sums.d2 += d * d;
      sums.b2 += b * b;
      sums.max_abs = std::max(sums.max_abs, std::abs(d));
    };
    for (size_t i = offset; i < offset + static_cast<size_t>(num_elements); ++i) {
      sums.num_differing += scratch.differs[i];
      if (in_float_) {
        add(static_cast<double>(scratch.a_values[i]), static_cast<double>(scratch.b_values[i]));
      } else {
        add(scratch.a_wide[i], scratch.b_wide[i]);
      }
    }
  }

  std::vector<int64_t> IndexOf(int64_t flat) const {
    std::vector<int64_t> index(b_.shape.rank());
    for (size_t axis = index.size(); axis-- > 0;) {
      index[axis] = flat % b_.shape[axis];
      flat /= b_.shape[axis];
    }
    return index;
  }

  std::vector<RowDifference> WorstRows(int num_worst_rows) const {
    std::vector<size_t> order;
    for (size_t row = 0; row < rows_.size(); ++row) {
      if (rows_[row].num_differing > 0) order.push_back(row);
    }
    const auto badness = [&](size_t row) {
      const RowSums& sums = rows_[row];
      if (sums.d2 == 0) return 0.0;
      return sums.b2 > 0 ? sums.d2 / sums.b2 : HUGE_VAL;
    };
    const size_t kept = std::min(order.size(), static_cast<size_t>(std::max(num_worst_rows, 0)));
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
                      [&](size_t a, size_t b) {
                        const double bad_a = badness(a);
                        const double bad_b = badness(b);
                        return bad_a != bad_b ? bad_a > bad_b : a < b;
                      });
    std::vector<RowDifference> worst;
    for (size_t i = 0; i < kept; ++i) {
      const RowSums& sums = rows_[order[i]];
      RowDifference row{static_cast<int64_t>(order[i]), std::nullopt, sums.max_abs,
                        sums.num_differing};
      if (sums.b2 > 0 || sums.d2 == 0) row.relative_rmse = std::sqrt(badness(order[i]));
      worst.push_back(row);
    }
    return worst;
  }

  const ElementSource& a_;
  const ElementSource& b_;
  const DType dtype_;
  const bool same_type_;
  const bool in_float_;
  const Grid grid_;
  DifferenceSums total_;
  std::vector<RowSums> rows_;
  std::mutex mutex_;
  std::vector<int64_t> row_counts_;
  std::vector<int64_t> column_counts_;
};

}  // namespace

ElementSource SourceOf(Tensor tensor) {
  ElementSource source;
  source.dtype = tensor.dtype();
  std::vector<int64_t> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
  if (source.dtype == DType::kC64) {
    source.dtype = DType::kF32;
    dims.push_back(2);
  } else if (source.dtype == DType::kUnknown) {
    source.dtype = DType::kU8;
    dims = {tensor.num_bytes()};
  }
  source.shape = Shape(std::move(dims));
  const int64_t cols = source.shape.rank() == 0 ? 1 : source.shape[source.shape.rank() - 1];
  source.read = [tensor = std::move(tensor), row_bits = cols * BitsOf(source.dtype)](
                    int64_t first, int64_t count, std::vector<std::byte>& /*scratch*/) {
    return tensor.bytes().subspan(static_cast<size_t>(first * row_bits / 8),
                                  static_cast<size_t>(CeilDiv(count * row_bits, int64_t{8})));
  };
  return source;
}

TensorDifference MeasureDifference(const ElementSource& a, const ElementSource& b,
                                   int num_worst_rows) {
  if (a.shape != b.shape) {
    ThrowInternal("compare: shapes {} and {} differ", a.shape.ToString(), b.shape.ToString());
  }
  Comparison comparison(a, b);
  comparison.Run();
  return comparison.Result(num_worst_rows);
}

}  // namespace assay
