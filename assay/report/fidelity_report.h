#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/fidelity.h"

namespace assay {

/// `assay.fidelity/1`; docs/reports.md explains every key.
Json FidelityJson(const FidelityReport& report, const std::string& command, const Machine& machine);

/// The answer for a terminal: one row a format, or with `per_tensor` one row a matrix.
std::string FidelityText(const FidelityReport& report, bool per_tensor, const TableStyle& style);

}  // namespace assay
