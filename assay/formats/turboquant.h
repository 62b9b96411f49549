#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "assay/formats/catalogue.h"
#include "assay/formats/format.h"
#include "assay/numeric/lloyd_max.h"

namespace assay {

/// TurboQuant weights: every group of a row is sign-flipped, rotated by a Walsh–Hadamard transform
/// and stored as the norm of the group and one codebook index a value.
///
/// Layout:   three planes
///
///     packed  U8 [rows, cols · stored_bits / 8]   index k of a row in bits (k mod (8 / stored)) ·
///                                                 stored of byte k / (8 / stored), low bits first
///     scales  F16 [rows, cols / group_size]       norms
///     signs   I8 [cols]                           +1 or −1, one vector for all rows
///
///           2-bit indices take 2 bits; 3-bit and 4-bit indices take a nibble each.
/// Values:   encode: y = H(w · s) / √g / norm, index = number of inner boundaries strictly below
///           y. Decode: s · H(centroid[index] · norm) / √g. All steps in f32, each rounded once;
///           norm is the sum of squares in numpy's order, at least 1e-10, rounded to f16 only when
///           stored. Decoded values are rounded to bf16 (kNone: they are not).
///           Not encoded: NaN, infinities, and groups whose norm exceeds f16 (upstream writes an
///           infinite scale that decodes to NaN).
/// Accuracy: exact: the bits of upstream's encoder and bulk decoder, on every target.
/// Source:   agent-infer, scripts/turboquant_weights.py and turboquant_weight_gemv.cu (after the
///           fix of the butterfly's sign); docs/formats/turboquant.md.
class TurboQuantFormat final : public Format,
                               public std::enable_shared_from_this<TurboQuantFormat> {
 public:
  static constexpr int kBits[] = {2, 3, 4};
  static constexpr int kGroupSizes[] = {32, 64, 128};

  /// Requires one of kBits and one of kGroupSizes. Errors: internal.
  TurboQuantFormat(int bits, int group_size);

  /// The shared instance. Requires and errors as the constructor.
  static std::shared_ptr<const TurboQuantFormat> Make(int bits, int group_size);
  static bool Supports(int64_t bits, int64_t group_size) noexcept;

  int bits() const noexcept { return bits_; }
  int group_size() const noexcept { return group_size_; }
  /// Bits an index takes in the packed plane: 2 or 4.
  int stored_bits() const noexcept { return bits_ == 2 ? 2 : 4; }
  int num_levels() const noexcept { return 1 << bits_; }

  /// The loader's table: 2^bits centroids, ascending. Computed at the first call.
  const Codebook& DecoderCodebook() const;
  /// The encoder's table: indices are chosen by its boundaries.
  const Codebook& EncoderCodebook() const;

  std::string Name() const override;
  std::string Summary() const override;
  std::optional<GroupGeometry> Geometry() const override {
    return GroupGeometry{bits(), group_size()};
  }
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  /// A given plane "signs" is taken; otherwise TurboQuantSigns of the tensor's name.
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;
  /// Refuses indices beyond the codebook, scales that are not finite, signs that are not ±1.
  void Validate(const EncodedMatrix& encoded, std::string_view name) const override;
  const CheckpointForm* Form() const override;

 private:
  int bits_;
  int group_size_;
};

/// A matrix from the tensors of a checkpoint, their shapes checked against each other, the content
/// not (Validate does). Errors: input, naming the tensor that does not fit.
EncodedMatrix TurboQuantFromPlanes(const std::shared_ptr<const TurboQuantFormat>& format,
                                   Tensor packed, Tensor scales, Tensor signs,
                                   std::string_view name);

/// The signs of a tensor that brings none: +1 or −1 per column.
/// Why:    upstream seeds numpy's generator with Python's hash of the name, which differs from
///         process to process. This is its generator under a seed anybody can reproduce:
///         numpy.random.RandomState(zlib.crc32(name.encode())).choice([-1, 1], cols)
/// Values: Mersenne Twister MT19937 seeded with the CRC-32 of the name; the lowest bit of each
///         output, 1 is +1.
std::vector<int8_t> TurboQuantSigns(std::string_view tensor_name, int64_t cols);

extern const FormatFamily kTurboQuantFamily;

}  // namespace assay
