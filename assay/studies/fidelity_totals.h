#pragma once

#include <span>
#include <string>

#include "assay/studies/fidelity.h"

namespace assay {

/// The total of one format, or of the copy (`against`, then named "against"), over its results.
FidelityTotal TotalOf(std::span<const FidelityResult> results, const std::string& name,
                      bool against);

}  // namespace assay
