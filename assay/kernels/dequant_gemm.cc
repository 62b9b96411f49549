#include <fmt/format.h>

#include <algorithm>

#include "assay/base/parallel.h"
#include "assay/formats/plain.h"
#include "assay/kernels/dense.h"
#include "assay/kernels/strategies.h"

namespace assay {
namespace {

/// Decodes everything on every call: what a program without fused kernels does.
class DequantGemm final : public Matmul {
 public:
  DequantGemm(const EncodedMatrix& weight, const MatmulOptions& options)
      : Matmul(weight, Strategy::kDequantGemm, options),
        decoder_(MakePanelDecoder(weight_, rounding_)),
        // bf16 scratch only where it holds the decoded values exactly.
        dtype_(options.x_dtype == DType::kBF16 && weight_.dtype == DType::kBF16 &&
                       rounding_ == DecodeRounding::kCheckpoint && DenseSupports(DType::kBF16)
                   ? DType::kBF16
                   : DType::kF32),
        dense_(Dense() != nullptr) {}

  /// Plain weights of the product's dtype need no decoding: they are the dense product itself.
  const Tensor* Dense() const {
    if (FamilyOf(weight_.format->Name()).name != kPlainFamily.name) return nullptr;
    const Tensor& values = weight_.planes.front().tensor;
    return values.dtype() == dtype_ ? &values : nullptr;
  }

  int64_t prepared_bytes() const override {
    return static_cast<int64_t>(f32_.num_bytes() + bf16_.num_bytes());
  }

  std::string Implementation() const override {
    const std::string_view type = dtype_ == DType::kBF16 ? "bf16" : "f32";
    return dense_ ? fmt::format("{} as stored, {}", type, DenseLibraryName())
                  : fmt::format("decoded to {}, {}", type, DenseLibraryName());
  }

  Accuracy Bound() const override {
    // Any order of summation, subnormal operands flushed by bf16 instructions not counted.
    return {false, (static_cast<double>(cols()) + 8) * 0x1p-24, 1, "(K + 8) · 2^-24"};
  }

 protected:
  void Multiply(const Activations& x, float* y) override {
    if (const Tensor* values = Dense()) {
      const void* x_values = dtype_ == DType::kF32 ? static_cast<const void*>(x.F32())
                                                   : static_cast<const void*>(x.bytes().data());
      DenseProduct(dtype_, x.num_rows(), rows(), cols(), x_values, values->bytes().data(), y);
      return;
    }
    const auto count = static_cast<size_t>(rows() * cols());
    if (dtype_ == DType::kBF16) {
      bf16_.Resize(count);
      Decode([this](int64_t first, int64_t last) {
        decoder_->DecodeBF16(first, last - first, 0, cols(), bf16_.data() + first * cols(), cols());
      });
      DenseProduct(dtype_, x.num_rows(), rows(), cols(), x.bytes().data(), bf16_.data(), y);
      return;
    }
    f32_.Resize(count);
    Decode([this](int64_t first, int64_t last) {
      decoder_->DecodeF32(first, last - first, 0, cols(), f32_.data() + first * cols(), cols());
    });
    DenseProduct(dtype_, x.num_rows(), rows(), cols(), x.F32(), f32_.data(), y);
  }

 private:
  template <typename Body>
  void Decode(const Body& body) {
    constexpr int64_t kValuesPerChunk = int64_t{1} << 17;
    ParallelFor(0, rows(), RowsPerChunk(cols(), kValuesPerChunk), body);
  }

  std::unique_ptr<PanelDecoder> decoder_;
  DType dtype_;
  bool dense_;
  AlignedBuffer<float> f32_;
  AlignedBuffer<uint16_t> bf16_;
};

}  // namespace

std::unique_ptr<Matmul> MakeDequantGemm(const EncodedMatrix& weight, const MatmulOptions& options) {
  return std::make_unique<DequantGemm>(weight, options);
}

}  // namespace assay
