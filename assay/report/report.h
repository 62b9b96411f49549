#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "assay/measure/error_stats.h"
#include "assay/measure/machine.h"
#include "assay/measure/timing.h"

namespace assay {

/// JSON with keys in the order they were added: the answer first.
using Json = nlohmann::ordered_json;

/// What every report starts with.
struct ReportHead {
  std::string schema;   ///< "assay.fidelity/1"
  std::string command;  ///< the command line that made it
  Machine machine;
  /// What the numbers say, in sentences made from the options that ran.
  std::vector<std::string> scope;
  /// What they do not say.
  std::vector<std::string> limitations;
};

/// An object with `schema`, `assay_version`, `command`, `environment`, `scope`, `limitations`; the
/// study adds its own keys behind them. scope and limitations are one string each, as in the
/// reports people wrote by hand.
Json MakeReport(const ReportHead& head);

/// A figure that may have no value.
Json OrNull(const std::optional<double>& value);

/// Keys of docs/reports.md, section "Errors". A figure without a value is null.
Json ToJson(const ErrorStats& stats);
/// `environment`: "cpu", "isa", "threads", "compiler", "blas", ….
Json ToJson(const Machine& machine);
/// Adds PREFIX_ms (median), PREFIX_min_ms, PREFIX_max_ms, PREFIX_samples_ms and, if there are any,
/// PREFIX_preempted.
void AddTiming(Json& object, std::string_view prefix, const TimingSamples& samples);

/// The text of a report file: two blanks of indentation, a final newline, bytes that are no UTF-8
/// replaced by U+FFFD, numbers that JSON lacks (NaN, infinity) as null.
std::string Serialise(const Json& report);

}  // namespace assay
