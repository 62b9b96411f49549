#pragma once

#include <gtest/gtest.h>

#include <string>

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

}  // namespace assay::test
