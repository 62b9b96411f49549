#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "assay/formats/ggml_type.h"
#include "assay/kernels/kernel_family.h"

namespace assay {

/// How a ggml type's blocks become planes: codes in a dense stream, scales, biases.
struct GgmlPacking {
  std::string_view type;            ///< "Q4_K"
  int bits = 0;                     ///< of a code in the stream; 8: int8
  int middle = 0;                   ///< code − middle is the integer that is scaled …
  std::span<const int8_t> table{};  ///< … or what stands here for the code; 16 of them
  int64_t group = 32;               ///< columns of a scale
  int64_t scale_at = 0;             ///< byte of a block where its f16 scale is
  int64_t min_at = -1;              ///< of the f16 that is added, or subtracted times an integer
  int64_t sub_scales = 0;           ///< groups in a record of scales; 0: the f16 is the scale
};

/// Null when the type has no kernels of integer codes.
const GgmlPacking* FindGgmlPacking(const GgmlType& type) noexcept;

/// Groups in a record of biases: f16 factor, then a byte for each.
inline constexpr int64_t kGgmlSubBiases = 8;

/// Planes of a weight of this type:
///   codes   [rows, cols · bits / 8], code c in bits [c · bits, +bits) of its row's stream
///   scales  [rows, cols / group] f16; with sub-scales records of an f16 and sub_scales int8
///   biases  the same in f16, where the type adds; with sub-scales records of kGgmlSubBiases bytes
///           under their f16, negated; empty without minima. One record's room behind the last.
/// Nothing when a scale or minimum is infinite or NaN.
std::optional<EncodedMatrix> RepackGgml(const EncodedMatrix& weight, const GgmlPacking& packing);

/// For kernels that want f32:
///   codes   of 4 bits as above, int8 integers for the others
///   scales, biases  [rows, cols / group] f32; biases empty without minima
/// Nothing when a scale or minimum is infinite or NaN.
std::optional<EncodedMatrix> WidenGgml(const EncodedMatrix& weight, const GgmlPacking& packing);

/// MXFP4 as the matrix of "mxfp4" with the same values: nothing when a scale is 2^128, which that
/// format has not.
std::optional<EncodedMatrix> RepackGgmlMxfp4(const EncodedMatrix& weight);

}  // namespace assay
