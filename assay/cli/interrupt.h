#pragma once

#include <array>
#include <csignal>
#include <exception>

#include "assay/base/progress.h"

namespace assay::cli {

/// Thrown at the next progress report after a signal that asks to stop.
/// Why not an Error: nothing is wrong, and no message is due.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal) : signal_(signal) {}

  int signal() const noexcept { return signal_; }
  const char* what() const noexcept override { return "interrupted"; }

 private:
  int signal_;
};

/// While it lives, the first SIGINT, SIGTERM or SIGHUP only sets a flag, so that unfinished output
/// is removed on the way out; a second one ends the process at once. Signals that were ignored
/// (nohup) stay ignored. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  /// `sink`, which may be empty, preceded by a check of the flag.
  /// The result throws Interrupted after a signal.
  static ProgressSink Watch(ProgressSink sink);

 private:
  static constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

  std::array<struct sigaction, kSignals.size()> previous_{};
};

/// Ends the process as the signal would have, so that a shell sees why. Does not return.
[[noreturn]] void EndBySignal(int signal);

}  // namespace assay::cli
