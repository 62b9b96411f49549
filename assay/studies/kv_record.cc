#include "assay/studies/kv_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "assay/base/parallel.h"
#include "assay/formats/deepseek_cache.h"
#include "assay/numeric/bulk.h"

namespace assay {
namespace {

constexpr int64_t kValuesPerBlock = int64_t{1} << 15;
constexpr size_t kNumWorstTokens = 3;

/// x, and where the format rotates, x rotated, in blocks of whole positions.
class Source {
 public:
  Source(const KvCapture& capture, const Tensor& rows, bool rotated)
      : matrix_(rows.view(), capture.rows(), capture.cols),
        heads_(capture.heads),
        rotated_(rotated) {}

  const MatrixView& matrix() const { return matrix_; }
  int64_t cols() const { return matrix_.cols(); }
  /// As many positions as make a block, at least one.
  int64_t BlockPositions() const { return RowsPerChunk(heads_ * cols(), kValuesPerBlock); }
  /// Sections of positions go in as x, or as the rotated x.
  void Read(int64_t first_position, int64_t count, bool rotated, std::span<float> out) const {
    matrix_.ReadRows(first_position * heads_, count * heads_, out);
    if (rotated) RotateIndexer(out, matrix_.dtype() == DType::kBF16);
  }
  bool rotated() const { return rotated_; }

 private:
  MatrixView matrix_;
  int64_t heads_;
  bool rotated_;
};

/// Whether each value is finite, before and after the rotation.
struct Finiteness {
  bool source = true;
  bool rotated = true;
};

Finiteness CheckFinite(const Source& source, int64_t positions, size_t position_values) {
  const int64_t grain = source.BlockPositions();
  std::vector<Finiteness> blocks(static_cast<size_t>((positions + grain - 1) / grain));
  ParallelFor(0, positions, grain, [&](int64_t first, int64_t last) {
    std::vector<float> values(static_cast<size_t>(last - first) * position_values);
    const auto all_finite = [&values] {
      return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    };
    Finiteness& block = blocks[static_cast<size_t>(first / grain)];
    source.Read(first, last - first, false, values);
    block.source = all_finite();
    if (!source.rotated() || !block.source) return;
    source.Read(first, last - first, true, values);
    block.rotated = all_finite();
  });
  Finiteness all;
  for (const Finiteness& block : blocks) {
    all.source = all.source && block.source;
    all.rotated = all.rotated && block.rotated;
  }
  return all;
}

void RoundToF16(std::span<const float> values, std::span<float> out) {
  std::vector<std::byte> codes(values.size() * 2);
  Round(Element::kF16, values, codes);
  Widen(Element::kF16, codes, out);
}

/// What the format holds: for the rotated one the values that the cache has.
void DecodeCached(const EncodedMatrix& encoded, int64_t first, int64_t count,
                  std::span<float> out) {
  const auto* cache = dynamic_cast<const DeepSeekCacheFormat*>(encoded.format.get());
  if (cache != nullptr) {
    cache->DecodeCachedRows(encoded, first, count, out);
  } else {
    encoded.format->DecodeRows(encoded, first, count, out);
  }
}

/// Sums of one block of positions.
struct Block {
  ErrorSums native;
  ErrorSums f16;
  std::vector<ErrorSums> heads;  // empty for a single head
  double native_vs_f16 = 0;
};

KvWorst WorstOf(int64_t index, const ErrorSums& sums) {
  const ErrorStats stats = sums.Stats();
  return {index, stats.relative_rmse, stats.max_abs};
}

/// A figure without a value (an error where x is 0 everywhere) is worse than any other.
double Badness(const KvWorst& worst) {
  return worst.relative_l2.value_or(std::numeric_limits<double>::infinity());
}

std::vector<KvWorst> WorstFirst(std::vector<KvWorst> all) {
  const size_t keep = std::min(kNumWorstTokens, all.size());
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(keep), all.end(),
                    [](const KvWorst& a, const KvWorst& b) {
                      const double bad_a = Badness(a);
                      const double bad_b = Badness(b);
                      return bad_a > bad_b || (bad_a == bad_b && a.index < b.index);
                    });
  all.resize(keep);
  return all;
}

void Compare(const Source& source, const EncodedMatrix* encoded, bool rotated, KvRecord& record) {
  const auto cols = static_cast<size_t>(source.cols());
  const auto heads = static_cast<size_t>(record.heads);
  const int64_t grain = source.BlockPositions();
  std::vector<Block> blocks(static_cast<size_t>((record.positions + grain - 1) / grain));
  std::vector<KvWorst> positions(static_cast<size_t>(record.positions));
  ParallelFor(0, record.positions, grain, [&](int64_t first, int64_t last) {
    const auto count = static_cast<size_t>(last - first);
    Block& block = blocks[static_cast<size_t>(first / grain)];
    std::vector<float> x(count * heads * cols);
    std::vector<float> half(x.size());
    std::vector<float> native;
    source.Read(first, last - first, rotated, x);
    RoundToF16(x, half);
    block.f16.Add(half, x);
    if (encoded == nullptr) {
      block.native.Add(x, x);  // counts only
      return;
    }
    native.resize(x.size());
    DecodeCached(*encoded, first * record.heads, (last - first) * record.heads, native);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto difference = static_cast<double>(std::abs(native[i] - half[i]));
      if (difference > block.native_vs_f16) block.native_vs_f16 = difference;
    }
    if (heads > 1) block.heads.resize(heads);
    for (size_t p = 0; p < count; ++p) {
      ErrorSums position;
      for (size_t head = 0; head < heads; ++head) {
        ErrorSums row;
        const size_t offset = (p * heads + head) * cols;
        row.Add(std::span(native).subspan(offset, cols), std::span(x).subspan(offset, cols));
        if (heads > 1) block.heads[head].Merge(row);
        position.Merge(row);
      }
      block.native.Merge(position);
      const int64_t index = first + static_cast<int64_t>(p);
      positions[static_cast<size_t>(index)] = WorstOf(index, position);
    }
  });
  ErrorSums native;
  ErrorSums f16;
  std::vector<ErrorSums> head_sums(heads > 1 ? heads : 0);
  double native_vs_f16 = 0;
  for (const Block& block : blocks) {
    native.Merge(block.native);
    f16.Merge(block.f16);
    native_vs_f16 = std::max(native_vs_f16, block.native_vs_f16);
    for (size_t head = 0; head < block.heads.size(); ++head) {
      head_sums[head].Merge(block.heads[head]);
    }
  }
  record.native = native.Stats();
  record.f16 = f16.Stats();
  if (!record.native.finite) return;
  if (record.f16.finite) record.native_vs_f16_max_abs = native_vs_f16;
  record.worst_positions = WorstFirst(std::move(positions));
  std::vector<KvWorst> by_head;
  for (size_t head = 0; head < head_sums.size(); ++head) {
    by_head.push_back(WorstOf(static_cast<int64_t>(head), head_sums[head]));
  }
  record.worst_heads = WorstFirst(std::move(by_head));
}

}  // namespace

std::string_view NameOf(KvRounding rounding) {
  return rounding == KvRounding::kNone ? "none" : "bf16";
}

double KvRecord::BytesPerToken() const {
  return static_cast<double>(num_bytes) / static_cast<double>(positions);
}

Tensor RoundCapture(const KvCapture& capture, const Tensor& rows, KvRounding rounding) {
  if (rounding == KvRounding::kNone || capture.dtype == DType::kBF16) return rows;
  const MatrixView matrix(rows.view(), capture.rows(), capture.cols);
  Tensor rounded = Tensor::AllocateUninitialized(DType::kBF16, Shape{capture.rows(), capture.cols});
  const std::span<std::byte> out = rounded.mutable_bytes();
  const auto cols = static_cast<size_t>(capture.cols);
  const int64_t grain = RowsPerChunk(capture.cols, kValuesPerBlock);
  ParallelFor(0, capture.rows(), grain, [&](int64_t first, int64_t last) {
    const size_t count = static_cast<size_t>(last - first) * cols;
    std::vector<float> values(count);
    matrix.ReadRows(first, last - first, values);
    Round(Element::kBF16, values, out.subspan(static_cast<size_t>(first) * cols * 2, count * 2));
  });
  return rounded;
}

KvRecord MeasureKv(const KvCapture& capture, const Tensor& rows, const FormatPtr& format,
                   KvRounding rounding) {
  KvRecord record;
  record.capture = capture.path;
  record.name = capture.name;
  record.dtype = capture.dtype;
  record.shape = capture.shape;
  record.format = format->Name();
  record.rounding = rounding;
  record.positions = capture.positions;
  record.heads = capture.heads;
  const auto* cache = dynamic_cast<const DeepSeekCacheFormat*>(format.get());
  record.rotated = cache != nullptr && cache->rotated();

  const Source source(capture, rows, record.rotated);
  const Finiteness finite =
      CheckFinite(source, capture.positions, static_cast<size_t>(capture.heads * capture.cols));
  const auto num_values = static_cast<double>(capture.rows() * capture.cols);
  if (finite.source && finite.rotated) {
    const EncodedMatrix encoded = format->Encode(source.matrix(), {.tensor_name = capture.name});
    record.num_bytes = encoded.NumBytes();
    Compare(source, &encoded, record.rotated, record);
  } else {
    record.num_bytes = static_cast<int64_t>(
        std::ceil(format->BitsPerWeight(capture.rows(), capture.cols) * num_values / 8));
    // A value that is not finite would spread over its rotated block: count it where it stands.
    Compare(source, nullptr, record.rotated && finite.source, record);
  }
  record.bits_per_value = 8 * static_cast<double>(record.num_bytes) / num_values;
  return record;
}

}  // namespace assay
