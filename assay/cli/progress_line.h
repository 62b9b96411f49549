#pragma once

#include <string>

#include "assay/base/progress.h"
#include "assay/cli/command.h"
#include "assay/measure/timing.h"

namespace assay::cli {

/// One line on stderr that is drawn over: "quantize  41 %  132/321  2.1 GB/s  14 s left". Shows
/// nothing when stderr is no terminal or --quiet was given. Cleared when destroyed.
class ProgressLine {
 public:
  ProgressLine(std::string label, const CommonOptions& common);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// For a study's options. Must not outlive the line.
  ProgressSink Sink();

 private:
  void Show(const Progress& progress);

  std::string label_;
  bool shown_;
  Stopwatch since_start_;
  double last_shown_s_ = -1;
};

/// The text of such a line.
std::string ProgressText(const std::string& label, const Progress& progress, double seconds);

}  // namespace assay::cli
