#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/convert.h"

namespace assay {

/// Adds the keys of docs/reports.md, section "assay.quantize/1", behind `head`'s, whose
/// schema is set by the caller.
Json ToJson(const ConvertReport& report, ReportHead head);

/// What was written, what it takes by kind, and what was kept and why.
std::string ToText(const ConvertReport& report, const TableStyle& style);

}  // namespace assay
