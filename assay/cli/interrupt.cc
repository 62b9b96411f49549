#include "assay/cli/interrupt.h"

#include <cstdlib>
#include <utility>

namespace assay::cli {
namespace {

volatile std::sig_atomic_t g_signal = 0;

void Remember(int signal) { g_signal = signal; }

}  // namespace

InterruptGuard::InterruptGuard() {
  g_signal = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &previous_[i]);
    if (previous_[i].sa_handler == SIG_IGN) continue;
    struct sigaction action {};
    action.sa_handler = Remember;
    action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
    sigemptyset(&action.sa_mask);
    sigaction(kSignals[i], &action, nullptr);
  }
}

InterruptGuard::~InterruptGuard() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &previous_[i], nullptr);
}

ProgressSink InterruptGuard::Watch(ProgressSink sink) {
  return [sink = std::move(sink)](const Progress& progress) {
    if (g_signal != 0) throw Interrupted(g_signal);
    if (sink) sink(progress);
  };
}

void EndBySignal(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  constexpr int kShellOffset = 128;  // reached only when the signal is blocked
  std::_Exit(kShellOffset + signal);
}

}  // namespace assay::cli
