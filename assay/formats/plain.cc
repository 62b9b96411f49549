#include "assay/formats/plain.h"

#include <algorithm>
#include <array>

#include "assay/base/error.h"
#include "assay/base/parallel.h"
#include "assay/numeric/bulk.h"
#include "assay/tensor/convert.h"

namespace assay {
namespace {

constexpr std::string_view kPlane = "values";

struct PlainType {
  std::string_view name;
  DType dtype;
  std::string_view summary;
};

/// A thread converts about 256 KiB of f32 at a time.
constexpr int64_t kValuesPerPlainChunk = int64_t{1} << 16;

constexpr std::array kPlainTypes = {
    PlainType{"f32", DType::kF32, "IEEE single precision, 32 bits"},
    PlainType{"f16", DType::kF16, "IEEE half precision: 5 exponent, 10 mantissa bits"},
    PlainType{"bf16", DType::kBF16, "the upper half of an f32: 8 exponent, 7 mantissa bits"},
};

class Plain final : public Format, public std::enable_shared_from_this<Plain> {
 public:
  explicit Plain(const PlainType& type) : type_(type) {}

  std::string Name() const override { return std::string(type_.name); }
  std::string Summary() const override { return std::string(type_.summary); }
  bool Lossless() const override { return type_.dtype == DType::kF32; }

  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType /*dtype*/) const override {
    if (!Shape{std::max<int64_t>(rows, 0), std::max<int64_t>(cols, 0)}.CheckedNumBytes(
            type_.dtype)) {
      return "its size in bytes does not fit 63 bits";
    }
    return std::nullopt;
  }

  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType /*dtype*/) const override {
    return {{std::string(kPlane), type_.dtype, Shape{rows, cols}}};
  }

  double BitsPerWeight(int64_t /*rows*/, int64_t /*cols*/) const override {
    return BitsOf(type_.dtype);
  }

  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override {
    RequireEncodable(*this, matrix, options);
    const int64_t cols = matrix.cols();
    Tensor values = Tensor::Allocate(type_.dtype, Shape{matrix.rows(), cols});
    const std::span<std::byte> out = values.mutable_bytes();
    const size_t row_bytes =
        static_cast<size_t>(cols) * static_cast<size_t>(BitsOf(type_.dtype)) / 8;
    ParallelFor(0, matrix.rows(), RowsPerChunk(cols, kValuesPerPlainChunk),
                [&](int64_t first, int64_t last) {
                  const std::span<std::byte> target =
                      out.subspan(static_cast<size_t>(first) * row_bytes,
                                  static_cast<size_t>(last - first) * row_bytes);
                  if (matrix.dtype() == type_.dtype) {
                    // A copy: rounding would make signalling NaN quiet.
                    std::ranges::copy(matrix.RowBytes(first, last - first), target.begin());
                    return;
                  }
                  std::vector<float> rows(static_cast<size_t>((last - first) * cols));
                  matrix.ReadRows(first, last - first, rows);
                  Round(ElementOf(type_.dtype), rows, target);
                });
    return EncodedMatrix{shared_from_this(),
                         matrix.rows(),
                         cols,
                         type_.dtype,
                         {Plane{std::string(kPlane), std::move(values)}}};
  }

  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding /*rounding*/) const override {
    MatrixView(encoded.Get(kPlane).view(), encoded.rows, encoded.cols).ReadRows(first, count, out);
  }

 private:
  const PlainType& type_;
};

FormatPtr Make(const PlainType& type) { return std::make_shared<Plain>(type); }

FormatPtr ParsePlain(std::string_view name) {
  for (const PlainType& type : kPlainTypes) {
    if (type.name == name) return Make(type);
  }
  return nullptr;
}

std::vector<std::string> PlainNames() {
  std::vector<std::string> names;
  for (const PlainType& type : kPlainTypes) names.emplace_back(type.name);
  return names;
}

}  // namespace

const FormatFamily kPlainFamily = {
    .name = "plain",
    .grammar = "f32 f16 bf16",
    .summary = "unquantised floats, rounded once to nearest even",
    .details =
        "Every value is rounded once, to nearest even, to the named type; the plane \"values\" is\n"
        "the row-major matrix. Overflow becomes infinity; NaN stays NaN. Encoding a matrix that "
        "is\n"
        "already of that type copies its bytes.",
    .parse = ParsePlain,
    .names = PlainNames,
    .recognise = nullptr,
};

FormatPtr PlainFormat(DType dtype) {
  for (const PlainType& type : kPlainTypes) {
    if (type.dtype == dtype) return Make(type);
  }
  ThrowInternal("{}: no plain format holds it", NameOf(dtype));
}

}  // namespace assay
