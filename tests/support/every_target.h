#pragma once

#include <gtest/gtest.h>

#include <string>

#include "assay/base/parallel.h"
#include "assay/base/target.h"

namespace assay::test {

/// Runs `body` once on each target this CPU supports, then goes back to the one before.
template <typename Body>
void OnEveryTarget(const Body& body) {
  const std::string before = ActiveTargetName();
  for (const std::string& target : SupportedTargets()) {
    SCOPED_TRACE("target " + target);
    ForceTarget(target);
    body();
  }
  ForceTarget(before);
}

/// The same, with 1, 2 and 3 threads on each.
template <typename Body>
void OnEveryTargetAndThreadCount(const Body& body) {
  const int before = NumThreads();
  OnEveryTarget([&] {
    for (int threads = 1; threads <= 3; ++threads) {
      SCOPED_TRACE("threads " + std::to_string(threads));
      SetNumThreads(threads);
      body();
    }
  });
  SetNumThreads(before);
}

}  // namespace assay::test
