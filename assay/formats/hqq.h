#pragma once

#include <memory>

#include "assay/formats/catalogue.h"

namespace assay {

/// HQQ: codes with a float scale and a float zero per group; decoded only.
/// Layout:   the matrix is viewed as M [R, C]: groups are rows (axis 1: C = group size) or columns
///           (axis 0: R = group size); without a group size M is the weight itself. Planes "codes",
///           packed over the **rows** of M: U8 [R·b/8, C], the first R·b/8 rows in the high bits
///           (3 bits: I32 [⌈R/10⌉, C], ten rows a word, the first in bits 29..27); "scale" and
///           "zero" [R, 1] (axis 1) or [1, C] (axis 0).
/// Values:   w = (code − zero) · scale in the compute dtype: the difference and the product are
///           each rounded.
/// Accuracy: exact.
/// Source:   hqq 0.2.8; docs/formats/hqq.md.
class HqqFormat final : public Format {
 public:
  static constexpr int64_t kNoGroups = 0;

  /// Requires bits 1, 2, 3, 4 or 8 (those of the packing), axis 0 or 1. Errors: internal.
  HqqFormat(int bits, int64_t group_size, int axis);

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override { return false; }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;

 private:
  struct View {
    int64_t rows;
    int64_t cols;
  };
  View ViewOf(int64_t rows, int64_t cols) const noexcept;

  int bits_;
  int64_t group_size_;
  int axis_;
};

extern const FormatFamily kHqqFamily;

/// Modules with a P.W_q and the meta tensors of hqq's state dict, which decide.
void RecogniseHqq(const CheckpointSource& source, Recognition& found);

}  // namespace assay
