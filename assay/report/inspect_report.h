#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/inspect.h"

namespace assay {

/// `assay.inspect/1`; docs/reports.md explains every key.
Json InspectJson(const InspectReport& report, const std::string& command);

/// Totals by kind and notes; with `list`, a row for every tensor before them.
std::string InspectText(const InspectReport& report, bool list, const TableStyle& style);

}  // namespace assay
