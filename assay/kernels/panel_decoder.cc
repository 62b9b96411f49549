#include "assay/kernels/panel_decoder.h"

#include <span>

#include "assay/base/aligned_buffer.h"
#include "assay/base/error.h"
#include "assay/kernels/kernel_family.h"
#include "assay/numeric/bulk.h"

namespace assay {
namespace {

/// Any format of the catalogue, by whole rows.
class RowDecoder final : public PanelDecoder {
 public:
  RowDecoder(EncodedMatrix weight, DecodeRounding rounding)
      : weight_(std::move(weight)), rounding_(rounding) {}

  int64_t ColumnGrain() const noexcept override { return weight_.cols; }

  void DecodeF32(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                 float* out, int64_t row_stride) const override {
    const int64_t cols = weight_.cols;
    if (first_col != 0 || num_cols != cols) {
      ThrowInternal("{}: columns [{}, +{}) of a decoder of whole rows of {}",
                    weight_.format->Name(), first_col, num_cols, cols);
    }
    if (row_stride == cols) {
      weight_.format->DecodeRows(weight_, first_row, num_rows,
                                 {out, static_cast<size_t>(num_rows * cols)}, rounding_);
      return;
    }
    for (int64_t r = 0; r < num_rows; ++r) {
      weight_.format->DecodeRows(weight_, first_row + r, 1,
                                 {out + r * row_stride, static_cast<size_t>(cols)}, rounding_);
    }
  }

  void DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col, int64_t num_cols,
                  uint16_t* out, int64_t row_stride) const override {
    // The format's own path to bf16 rounds as the checkpoint does.
    if (rounding_ != DecodeRounding::kCheckpoint || weight_.dtype == DType::kF16 ||
        num_cols != weight_.cols || row_stride != num_cols) {
      PanelDecoder::DecodeBF16(first_row, num_rows, first_col, num_cols, out, row_stride);
      return;
    }
    weight_.format->DecodeRowsTo(
        weight_, first_row, num_rows, DType::kBF16,
        std::as_writable_bytes(std::span(out, static_cast<size_t>(num_rows * num_cols))));
  }

 private:
  EncodedMatrix weight_;
  DecodeRounding rounding_;
};

}  // namespace

void PanelDecoder::DecodeBF16(int64_t first_row, int64_t num_rows, int64_t first_col,
                              int64_t num_cols, uint16_t* out, int64_t row_stride) const {
  thread_local AlignedBuffer<float> panel;
  panel.Resize(static_cast<size_t>(num_rows * num_cols));
  DecodeF32(first_row, num_rows, first_col, num_cols, panel.data(), num_cols);
  const auto count = static_cast<size_t>(num_cols);
  for (int64_t r = 0; r < num_rows; ++r) {
    Round(Element::kBF16, {panel.data() + r * num_cols, count},
          std::as_writable_bytes(std::span(out + r * row_stride, count)));
  }
}

std::unique_ptr<PanelDecoder> MakePanelDecoder(const EncodedMatrix& weight,
                                               DecodeRounding rounding) {
  for (const KernelFamily* family : KernelFamilies()) {
    if (family->make_decoder == nullptr) continue;
    if (auto decoder = family->make_decoder(weight, rounding)) return decoder;
  }
  return std::make_unique<RowDecoder>(weight, rounding);
}

}  // namespace assay
