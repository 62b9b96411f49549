#pragma once

#include <array>
#include <functional>
#include <span>

#include "assay/formats/format.h"
#include "assay/formats/fp_blocks.h"

namespace assay {

/// What the formats whose blocks of small floats share one scale byte have in common: block
/// geometry, planes "codes" and "scales", the parallel passes. A family adds the rule by which a
/// scale byte is chosen and what it stands for.
/// Layout:   "codes" [rows, cols · bits / 8] bytes (or the same bytes as U32 words), code k of a
///           row at bit k · bits of its least-significant-bit-first stream; "scales"
///           [rows, cols / block] bytes, row-major.
/// Values:   NaN and infinities are refused with their position: the upstreams that accept them
///           turn the whole block into NaN, or into zeros beside a saturated maximum.
class BlockFormat : public Format {
 public:
  BlockElement element() const noexcept { return element_; }
  int block() const noexcept { return block_; }

  using ScaleValues = std::array<float, 256>;
  /// What each scale byte of this matrix multiplies an element by, in f32; for kernels.
  ScaleValues ScaleTable(const EncodedMatrix& encoded, DecodeRounding rounding) const {
    return ValuesOfScales(encoded, rounding);
  }

  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;

 protected:
  /// Requires block 16 or 32; code_dtype U32 or one byte wide, scale_dtype one byte wide.
  BlockFormat(BlockElement element, int block, DType code_dtype, DType scale_dtype)
      : element_(element), block_(block), code_dtype_(code_dtype), scale_dtype_(scale_dtype) {}

  /// What each scale byte multiplies an element by, in f32.
  virtual ScaleValues ValuesOfScales(const EncodedMatrix& encoded,
                                     DecodeRounding rounding) const = 0;

  /// Chooses the scale byte of each block, and the factor its values meet in the quotient.
  /// Called for runs of blocks, from several threads.
  using ChooseScales = std::function<void(std::span<const uint32_t> amax_bits,
                                          std::span<uint8_t> scales, std::span<float> factors)>;

  /// Fills planes "codes" and "scales" of `encoded`, which must be allocated.
  /// Errors: input, naming row and column, for NaN and infinities.
  void EncodePlanes(const MatrixView& matrix, const EncodeOptions& options,
                    ElementRounding rounding, const BlockQuotient& quotient,
                    const ChooseScales& choose, EncodedMatrix& encoded) const;

  /// Largest magnitude of the matrix. Errors: as EncodePlanes.
  float AbsMaxOf(const MatrixView& matrix, const EncodeOptions& options) const;

  /// Planes of Layout, zero-filled. `dtype` is EncodedMatrix::dtype.
  EncodedMatrix Allocate(FormatPtr self, const MatrixView& matrix, DType dtype) const;

 private:
  void Decode(const EncodedMatrix& encoded, int64_t first, int64_t count, DecodeRounding rounding,
              DType out_dtype, std::span<std::byte> out) const;

  BlockElement element_;
  int block_;
  DType code_dtype_;
  DType scale_dtype_;
};

}  // namespace assay
