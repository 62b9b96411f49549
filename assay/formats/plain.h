#pragma once

#include "assay/formats/catalogue.h"

namespace assay {

/// f32, f16, bf16: one plane, "values", every element rounded once (nearest even) to the dtype.
/// As a format they are the baseline of every comparison, and lossless only for their own dtype.
extern const FormatFamily kPlainFamily;

/// The plain format of a dtype that IsWeightFloat. Errors: internal.
FormatPtr PlainFormat(DType dtype);

}  // namespace assay
