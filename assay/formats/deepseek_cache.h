#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/block_format.h"
#include "assay/formats/catalogue.h"

namespace assay {

/// Which quantity the constant 1e-4 keeps from vanishing in the FP8 scale.
enum class CacheFloor : uint8_t {
  kAmax,   ///< max(amax, 1e-4) / 448. DeepSeek's reference kernels
  kScale,  ///< max(amax / 448, 1e-4). vLLM's V4.1 kernel, FlashMLA's test quantizer
};

/// The scale of an FP8 block: the smallest power of two ≥ amax · f32(1/448), floored.
/// Requires a finite amax ≥ 0. Accuracy: exact, from the bits of the product; no logarithm.
float CacheFp8Scale(float amax, CacheFloor floor) noexcept;

/// The cache formats of DeepSeek V4.1 whose blocks share one scale byte, and V4's indexer.
/// Layout:   planes "codes" and "scales" of BlockFormat: one e4m3 byte per value, or two e2m1 codes
///           per byte (even element low); one e8m0 or e4m3 byte per block.
/// Values:   decoded values are bf16 (EncodedMatrix::dtype), as the in-place kernels leave them. A
///           product beyond f32 stays infinite. −0 and negatives that round to zero keep their
///           sign. NaN and infinity are outside the equations and refused.
/// Accuracy: exact on every target.
/// Source:   DeepSeek V4 and V4.1 inference code; docs/formats/deepseek_cache.md.
class DeepSeekCacheFormat final : public BlockFormat,
                                  public std::enable_shared_from_this<DeepSeekCacheFormat> {
 public:
  enum class Kind : uint8_t {
    kWindowFp8,         ///< e4m3, block 32, e8m0
    kWindowFp8Floored,  ///< the same under CacheFloor::kScale
    kMainFp4,           ///< e2m1, block 16, e4m3 scale, no second level
    kIndexFp4,          ///< e2m1, block 32, e8m0
    kRotatedIndexFp4,   ///< kIndexFp4 of the Hadamard-rotated 128 values (V4)
  };

  /// Width of the Hadamard rotation.
  static constexpr int64_t kRotation = 128;

  explicit DeepSeekCacheFormat(Kind kind);

  bool rotated() const noexcept { return kind_ == Kind::kRotatedIndexFp4; }

  std::string Name() const override;
  std::string Summary() const override;
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  /// In the domain of the source: for the rotated format the inverse rotation follows decoding.
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;
  void DecodeRowsTo(const EncodedMatrix& encoded, int64_t first, int64_t count, DType dtype,
                    std::span<std::byte> out) const override;

  /// What the cache holds: for the rotated format, values of the rotated domain.
  void DecodeCachedRows(const EncodedMatrix& encoded, int64_t first, int64_t count,
                        std::span<float> out,
                        DecodeRounding rounding = DecodeRounding::kCheckpoint) const;

 private:
  ScaleValues ValuesOfScales(const EncodedMatrix& encoded, DecodeRounding rounding) const override;

  Kind kind_;
};

/// V4's rotation of each `DeepSeekCacheFormat::kRotation` values: Walsh–Hadamard in ascending
/// strides, then one product with f32(128^-0.5), then, when `round_to_bf16`, one rounding.
/// Requires whole blocks. Its own inverse up to rounding.
void RotateIndexer(std::span<float> values, bool round_to_bf16);

/// FP8 rows whose last dims stay bf16, or whose scales are f32: the windows of V3.2 and V4, and the
/// FP8 indexer key.
/// Layout:   planes "codes" F8_E4M3 [rows, cols − rope], "scales" F8_E8M0 or F32 [rows, (cols −
///           rope) / block], and, where rope > 0, "rope" BF16 [rows, rope] with the last dims.
/// Values:   as DeepSeekCacheFormat; all scales are powers of two.
class RopeCacheFormat final : public Format, public std::enable_shared_from_this<RopeCacheFormat> {
 public:
  enum class Kind : uint8_t {
    kV4Window,   ///< block 64, e8m0, 64 rope dims
    kV32Window,  ///< block 128, f32 scales, 64 rope dims, CacheFloor::kScale
    kIndexFp8,   ///< one f32 scale per token of 128 dims
  };

  explicit RopeCacheFormat(Kind kind) : kind_(kind) {}

  int64_t block() const noexcept;
  int64_t rope() const noexcept;
  DType scale_dtype() const noexcept;

  std::string Name() const override;
  std::string Summary() const override;
  std::optional<std::string> WhyNot(int64_t rows, int64_t cols, DType dtype) const override;
  std::vector<PlaneSpec> Layout(int64_t rows, int64_t cols, DType dtype) const override;
  EncodedMatrix Encode(const MatrixView& matrix, const EncodeOptions& options) const override;
  void DecodeRows(const EncodedMatrix& encoded, int64_t first, int64_t count, std::span<float> out,
                  DecodeRounding rounding = DecodeRounding::kCheckpoint) const override;

 private:
  Kind kind_;
};

extern const FormatFamily kDeepSeekCacheFamily;

}  // namespace assay
