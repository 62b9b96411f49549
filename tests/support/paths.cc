#include "tests/support/paths.h"

// The definitions are those of this file alone: every other one compiles the same in any checkout.
namespace assay::test {

std::string TestDataPath(const std::string& relative_path) {
  return SourcePath("tests/data/" + relative_path);
}

std::string SourcePath(const std::string& relative_path) {
  return std::string(ASSAY_SOURCE_DIR) + "/" + relative_path;
}

std::string ProgramPath() { return ASSAY_CLI; }

}  // namespace assay::test
