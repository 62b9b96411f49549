#include <gtest/gtest.h>

#include "assay/base/target.h"

namespace assay::test {
namespace {

/// ASSAY_TARGET=avx2 ctest … runs every test on that target.
class TargetEnvironment : public testing::Environment {
 public:
  void SetUp() override { SelectTargetFromEnvironment(); }
};

[[maybe_unused]] const auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new TargetEnvironment);

}  // namespace
}  // namespace assay::test
