#include <vector>

#include "assay/base/parallel.h"
#include "assay/kernels/strategies.h"

namespace assay {
namespace {

class Reference final : public Matmul {
 public:
  Reference(const EncodedMatrix& weight, const MatmulOptions& options)
      : Matmul(weight, Strategy::kReference, options) {}

  int64_t prepared_bytes() const override { return 0; }
  std::string Implementation() const override { return "double, scalar"; }
  // The sum in double is rounded to f32 once.
  Accuracy Bound() const override { return {true, 0x1p-24, 1, "2^-24"}; }

 protected:
  void Multiply(const Activations& x, float* y) override {
    const int64_t k = cols();
    const float* values = x.F32();
    constexpr int64_t kRowsPerChunk = 16;
    ParallelFor(0, rows(), kRowsPerChunk, [&](int64_t first, int64_t last) {
      std::vector<float> row(static_cast<size_t>(k));
      for (int64_t n = first; n < last; ++n) {
        weight_.format->DecodeRows(weight_, n, 1, row, rounding_);
        for (int64_t m = 0; m < x.num_rows(); ++m) {
          const float* x_row = values + m * k;
          double sum = 0;
          for (int64_t c = 0; c < k; ++c) {
            sum += static_cast<double>(x_row[c]) * static_cast<double>(row[static_cast<size_t>(c)]);
          }
          y[m * rows() + n] = static_cast<float>(sum);
        }
      }
    });
  }
};

}  // namespace

std::unique_ptr<Matmul> MakeReference(const EncodedMatrix& weight, const MatmulOptions& options) {
  return std::make_unique<Reference>(weight, options);
}

}  // namespace assay
