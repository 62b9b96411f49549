#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/formats/format.h"
#include "assay/measure/error_stats.h"
#include "assay/studies/kv_capture.h"

namespace assay {

/// What happens to a capture before the format sees it.
enum class KvRounding : uint8_t {
  kNone,  ///< its values as they are
  kBF16,  ///< rounded to bf16, as the kernels get them
};

/// "none", "bf16".
std::string_view NameOf(KvRounding rounding);

/// The error of one position over all heads, or of one head over all positions.
struct KvWorst {
  int64_t index = 0;
  std::optional<double> relative_l2;
  double max_abs = 0;
};

/// A capture through a format. x is the rounded capture, native what the format holds, decoded.
/// Values: for a rotated format x and native are of the rotated domain. When values are not finite
///         nothing is encoded, and both comparisons count them.
struct KvRecord {
  std::string capture;  ///< file
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::string format;
  KvRounding rounding = KvRounding::kNone;
  bool rotated = false;
  int64_t positions = 0;
  int64_t heads = 0;
  ErrorStats native;                            ///< of native against x
  ErrorStats f16;                               ///< of f16(x) against x
  std::optional<double> native_vs_f16_max_abs;  ///< none unless both are finite
  int64_t num_bytes = 0;                        ///< encoded, all planes
  double bits_per_value = 0;
  std::vector<KvWorst> worst_positions;  ///< largest relative L2 first, at most 3
  std::vector<KvWorst> worst_heads;      ///< none for a single head

  double BytesPerToken() const;
};

/// A capture's rows as a format under this rounding gets them: the tensor itself, or bf16.
Tensor RoundCapture(const KvCapture& capture, const Tensor& rows, KvRounding rounding);

/// Encodes, decodes, compares. `rows` is RoundCapture's.
/// Requires: the format can hold it (WhyNot). Errors: input for values beyond the format's rules.
/// Cost: three passes; the encoded capture, and some rows for each thread.
KvRecord MeasureKv(const KvCapture& capture, const Tensor& rows, const FormatPtr& format,
                   KvRounding rounding);

}  // namespace assay
