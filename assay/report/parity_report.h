#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/parity.h"

namespace assay {

/// Adds the keys of docs/reports.md, section "assay.parity/1", behind `head`'s.
Json ToJson(const ParityReport& report, ReportHead head);

/// The verdict, the figures, and the first values of both sides.
std::string ToText(const ParityReport& report, const TableStyle& style);

}  // namespace assay
