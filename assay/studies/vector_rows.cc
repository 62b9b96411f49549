#include <cmath>
#include <functional>

#include "assay/base/error.h"
#include "assay/numeric/bulk.h"
#include "assay/numeric/random.h"
#include "assay/studies/vectors.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

/// Smallest subnormal of a dtype, as a power of two.
int SmallestExponent(DType dtype) {
  if (dtype == DType::kF16) return -24;
  if (dtype == DType::kBF16) return -133;
  return -149;
}

class RowMaker {
 public:
  RowMaker(DType dtype, int64_t cols, uint64_t seed)
      : dtype_(dtype), cols_(cols), normal_(seed), bits_(~seed) {}

  /// One row: value(column), rounded to the dtype.
  void Add(std::string reason, const std::function<float(int64_t)>& value) {
    VectorRow row{std::move(reason), std::vector<float>(static_cast<size_t>(cols_))};
    for (int64_t col = 0; col < cols_; ++col) row.values[static_cast<size_t>(col)] = value(col);
    std::vector<std::byte> codes(row.values.size() * static_cast<size_t>(BitsOf(dtype_)) / 8);
    Round(ElementOf(dtype_), row.values, codes);
    Widen(ElementOf(dtype_), codes, row.values);
    rows_.push_back(std::move(row));
  }

  float Normal() { return normal_.Next(); }
  float Sign() { return (bits_.Next() & 1) != 0 ? -1.0f : 1.0f; }
  /// A whole number from 0 to `most`.
  int64_t Whole(int64_t most) {
    return static_cast<int64_t>(bits_.Next() % static_cast<uint64_t>(most + 1));
  }

  /// Whole multiples of `step` with random signs, the largest of every 16 being `count` steps:
  /// where a scale comes out as a power of two, half of them lie half way between two codes.
  void AddTies(float step, int64_t count) {
    Add(fmt::format("ties: multiples of {} up to {}", step, step * static_cast<float>(count)),
        [&](int64_t col) {
          const int64_t steps = col % 16 == 0 ? count : Whole(count);
          return Sign() * static_cast<float>(steps) * step;
        });
  }

  std::vector<VectorRow> Take() { return std::move(rows_); }

 private:
  DType dtype_;
  int64_t cols_;
  NormalGenerator normal_;
  SplitMix64 bits_;
  std::vector<VectorRow> rows_;
};

}  // namespace

std::vector<VectorRow> MakeVectorRows(DType dtype, int64_t cols, uint64_t seed) {
  RowMaker rows(dtype, cols, seed);
  rows.Add("random: N(0, 1)", [&](int64_t) { return rows.Normal(); });
  rows.Add("random: N(0, 0.02), as weights are", [&](int64_t) { return 0.02f * rows.Normal(); });
  rows.Add("random: heavy tails, the cube of N(0, 1)", [&](int64_t) {
    const float x = rows.Normal();
    return x * x * x;
  });
  rows.Add("random: magnitudes from 2^-16 to 2^12", [&](int64_t) {
    return rows.Sign() * std::ldexp(1.0f + static_cast<float>(rows.Whole(127)) / 128.0f,
                                    static_cast<int>(rows.Whole(27)) - 16);
  });
  rows.Add("one-sided: from 1 to 2",
           [&](int64_t) { return 1.0f + static_cast<float>(rows.Whole(128)) / 128.0f; });
  rows.Add("one-sided: from -2 to -1",
           [&](int64_t) { return -1.0f - static_cast<float>(rows.Whole(128)) / 128.0f; });
  rows.AddTies(0.5f, 7);
  rows.AddTies(0.5f, 15);
  rows.AddTies(0.5f, 31);
  rows.AddTies(0.5f, 255);
  rows.AddTies(0.25f, 24);
  rows.AddTies(0.0625f, 120);
  rows.Add("ramp: from -1 upwards in steps of 1/64",
           [&](int64_t col) { return static_cast<float>(col % 128) / 64.0f - 1.0f; });
  rows.Add("zero: +0 everywhere", [](int64_t) { return 0.0f; });
  rows.Add("zero: -0 and +0 in turn", [](int64_t col) { return col % 2 == 0 ? -0.0f : 0.0f; });
  rows.Add("zero: one value in every 32",
           [&](int64_t col) { return col % 32 == 5 ? rows.Normal() : 0.0f; });
  rows.Add("constant: 5", [](int64_t) { return 5.0f; });
  rows.Add("constant: -5", [](int64_t) { return -5.0f; });
  rows.Add("constant: a power of two, 0.125", [](int64_t) { return 0.125f; });
  rows.Add("outlier: N(0, 0.02) with one 7.9",
           [&](int64_t col) { return col == cols / 3 ? 7.9f : 0.02f * rows.Normal(); });
  rows.Add("outlier: N(0, 0.02), the first of every 32 a hundred times larger",
           [&](int64_t col) { return (col % 32 == 0 ? 2.0f : 0.02f) * rows.Normal(); });
  rows.Add("outlier: N(0, 0.02), the last of every 128 negative and large",
           [&](int64_t col) { return col % 128 == 127 ? -9.5f : 0.02f * rows.Normal(); });
  rows.Add("powers of two from 2^-8 to 2^7, both signs", [&](int64_t col) {
    return rows.Sign() * std::ldexp(1.0f, static_cast<int>(col % 16) - 8);
  });
  rows.Add("scale: groups of 32 whose largest values run through 6, 7.5, 28, 448 and one step more",
           [&](int64_t col) {
             constexpr float kTops[] = {6.0f,  6.03125f, 7.5f,   7.53125f,
                                        28.0f, 28.125f,  448.0f, 450.0f};
             const float top = kTops[(col / 32) % 8];
             return col % 32 == 7 ? top : top * 0.3f * std::tanh(rows.Normal());
           });
  const int smallest = SmallestExponent(dtype);
  rows.Add("subnormal: 0 to 7 times the smallest", [&](int64_t) {
    return rows.Sign() * std::ldexp(static_cast<float>(rows.Whole(7)), smallest);
  });
  rows.Add("subnormal: among normal values",
           [&](int64_t col) { return col % 3 == 0 ? std::ldexp(1.0f, smallest) : rows.Normal(); });
  rows.Add("tiny: N(0, 1) times 2^-13", [&](int64_t) { return 0x1p-13f * rows.Normal(); });
  rows.Add("large: N(0, 1) times 2^12", [&](int64_t) { return 0x1p12f * rows.Normal(); });
  return rows.Take();
}

}  // namespace assay
