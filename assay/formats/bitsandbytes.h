#pragma once

#include <memory>
#include <optional>

#include "assay/formats/catalogue.h"

namespace assay {

/// bitsandbytes 4-bit: codes into a table of 16 floats, one magnitude per block of the flattened
/// matrix (blocks run over row ends).
/// Layout:   planes "codes" U8 [⌈n/2⌉, 1], **high nibble first**; "absmax" F32 [⌈n/block⌉]; "table"
///           F32 [16]. Double quantisation keeps the magnitudes in 8 bits: "absmax" U8, and
///           "nested_absmax" F32 [⌈blocks/256⌉], "nested_table" F32 [256], "nested_offset" F32 [].
/// Values:   value = table[code] · absmax in f32, rounded to the checkpoint's dtype. NF4 and FP4
///           differ in the table; code 8 of FP4 is +0.
///           Encode: x · (1 / absmax), the code by thresholds (midpoints; strictly greater moves
///           up). A zero block takes absmax 0 and the code of 0. Double quantisation is decoded
///           only.
/// Accuracy: exact: the bits of bitsandbytes' torch path.
/// Source:   bitsandbytes 0.50.2; docs/formats/bitsandbytes.md.
class BitsAndBytesFormat final : public Format,
                                 public std::enable_shared_from_this<BitsAndBytesFormat> {
 public:
  enum class Table : uint8_t { kNf4, kFp4 };

  static constexpr int64_t kNestedBlock = 256;

  BitsAndBytesFormat(Table table, int64_t block, bool nested)
      : table_(table), block_(block), nested_(nested) {}

  /// Powers of two from 32 to 4096.
  static bool SupportsBlock(int64_t block) noexcept;

  Table table() const noexcept { return table_; }
  int64_t block() const noexcept { return block_; }
  bool nested() const noexcept { return nested_; }

  /// The 16 values that codes stand for.
  static std::span<const float, 16> ValuesOf(Table table) noexcept;

  std::string Name() const override;
  std::string Summary() const override;
  bool CanEncode() const override { return !nested_; }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;

 private:
  Table table_;
  int64_t block_;
  bool nested_;
};

extern const FormatFamily kBitsAndBytesFamily;

/// Weights with a quant_state.bitsandbytes__nf4 or __fp4 beside them. The state, not the config,
/// decides.
void RecogniseBitsAndBytes(const CheckpointSource& source, Recognition& found);

}  // namespace assay
