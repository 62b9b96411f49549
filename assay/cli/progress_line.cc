#include "assay/cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "assay/report/number.h"

namespace assay::cli {

std::string ProgressText(const std::string& label, const Progress& progress, double seconds) {
  const bool by_bytes = progress.num_bytes > 0;
  const auto done = static_cast<double>(by_bytes ? progress.bytes_done : progress.items_done);
  const auto all = static_cast<double>(by_bytes ? progress.num_bytes : progress.num_items);
  const double fraction = all > 0 ? done / all : 1.0;
  std::string text = fmt::format("{}  {:.0f} %  {}/{}", label, 100 * fraction, progress.items_done,
                                 progress.num_items);
  if (by_bytes && seconds > 0 && done > 0)
    text += fmt::format("  {:.1f} GB/s", done / seconds / 1e9);
  // An estimate from less than a second, or of less than 2 %, would only jump about.
  if (seconds > 1 && fraction > 0.02) {
    text += fmt::format("  {} left", HumanSeconds(seconds * (1 - fraction) / fraction));
  }
  return text;
}

ProgressLine::ProgressLine(std::string label, const CommonOptions& common)
    : label_(std::move(label)), shown_(!common.quiet && isatty(STDERR_FILENO) != 0) {}

ProgressLine::~ProgressLine() {
  if (shown_ && last_shown_s_ >= 0) {
    std::fputs("\r\x1b[K", stderr);
    std::fflush(stderr);
  }
}

ProgressSink ProgressLine::Sink() {
  if (!shown_) return {};
  return [this](const Progress& progress) { Show(progress); };
}

void ProgressLine::Show(const Progress& progress) {
  constexpr double kInterval = 0.1;
  const double seconds = since_start_.Seconds();
  if (last_shown_s_ >= 0 && seconds - last_shown_s_ < kInterval) return;
  last_shown_s_ = seconds;
  fmt::print(stderr, "\r{}\x1b[K", ProgressText(label_, progress, seconds));
  std::fflush(stderr);
}

}  // namespace assay::cli
