#pragma once

#include <string>

#include "assay/report/report.h"
#include "assay/report/table.h"
#include "assay/studies/kv.h"

namespace assay {

/// `assay.kv/1`; docs/reports.md explains every key.
Json KvJson(const KvReport& report, const std::string& command, const Machine& machine);

/// The answer for a terminal: one row a format, then formats side by side for every capture; that
/// second table is left out for many captures unless `per_capture`.
std::string KvText(const KvReport& report, bool per_capture, const TableStyle& style);

}  // namespace assay
