#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"

namespace assay {

/// packed12: bf16 in 12 bits a weight, lossless for every bit pattern.
///
/// Layout:   five planes; elements are numbered row by row, n = rows · cols ≤ 2³²
///
///     header          U8 [4]            base exponent B (1…241), version 1, 0, 0
///     sm              U8 [rows, cols]   sign << 7 | mantissa
///     ex              U8 [⌈n/2⌉]        exponent codes, 4 bits, even element in the low nibble
///     escape_indices  U32 [E]           strictly ascending
///     escape_values   BF16 [E]          the whole word
///
/// Values:   code 0 is exponent 0, code c in 1…15 is exponent B + c − 1. An element of any other
///           exponent is an escape; its sm byte and its code are 0, so that it decodes to +0
///           until the escape is written over it. NaN payloads, infinities, −0 and subnormals
///           need no rule of their own.
/// Encode:   B holds the most elements in B…B+14, the lowest such; counted in one pass.
/// Units:    4 + n + ⌈n/2⌉ + 6 E bytes.
class Packed12Format final : public Format {
 public:
  /// Exponents with a code of their own beside exponent 0.
  static constexpr int kNumCodes = 15;
  static constexpr int kMinBase = 1;
  static constexpr int kMaxBase = 241;
  static constexpr int kVersion = 1;
  static constexpr int64_t kHeaderBytes = 4;
  static constexpr int64_t kEscapeBytes = 6;
  static constexpr int64_t kMaxValues = int64_t{1} << 32;
  /// More escapes than this share of all values and a quantiser keeps bf16.
  static constexpr double kMaxEscapeFraction = 0.08;

  std::string Name() const override { return "packed12"; }
  std::string Summary() const override;
  bool Lossless() const override { return true; }
  bool HoldsAnyRank() const override { return true; }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> LayoutFor(const MatrixView& matrix) const override;
  std::optional<std::string> WhyKeepPlain(const MatrixView& matrix) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  /// As bf16 the words themselves, NaN payloads included.
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;
  /// ratio, escapes, escape_fraction, base_exponent, last_exponent: those of Packed12Info.
  std::vector<std::pair<std::string, double>> Figures(const EncodedMatrix& encoded) const override;
  const CheckpointForm* Form() const override;
};

/// What a report says of a packed matrix.
struct Packed12Info {
  int64_t num_values = 0;
  int64_t num_bytes = 0;  ///< all planes
  double ratio = 0;       ///< num_bytes over 2 · num_values; 0 for an empty matrix
  int64_t escapes = 0;
  double escape_fraction = 0;  ///< of num_values; 0 for an empty matrix
  int base_exponent = 0;       ///< first biased exponent with a code
  int last_exponent = 0;       ///< last one, base + 14
};

/// Requires planes that passed Validate.
Packed12Info Packed12InfoOf(const EncodedMatrix& encoded);

/// The planes one after the other, as a single byte string.
std::vector<std::byte> Packed12ToStream(const EncodedMatrix& encoded);

/// The matrix a byte string holds, every rule checked, whatever base it chose. All leading axes of
/// `shape` become rows. Errors: input, naming `name` and the byte.
EncodedMatrix Packed12FromStream(std::span<const std::byte> stream, const Shape& shape,
                                 std::string_view name);

extern const FormatFamily kPacked12Family;

}  // namespace assay
