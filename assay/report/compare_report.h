#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/compare.h"

namespace assay {

/// Adds the keys of docs/reports.md, section "assay.compare/1", behind `head`'s.
Json ToJson(const CompareReport& report, ReportHead head);

/// The verdict first, then what failed and where, then the figures: of every tensor when
/// `per_tensor`, else of the worst.
std::string ToText(const CompareReport& report, bool per_tensor, const TableStyle& style);

}  // namespace assay
