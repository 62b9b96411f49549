#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/studies/border.h"

namespace assay {

/// The object of docs/reports.md, section "The border to GGUF".
Json ToJson(const BorderSummary& border);

/// One line: how many names were mapped, what was undone.
std::string ToText(const BorderSummary& border);

}  // namespace assay
