#pragma once

#include <string>

namespace assay::test {

/// Absolute path of a file below tests/data.
std::string TestDataPath(const std::string& relative_path);

/// Absolute path of a file of the repository.
std::string SourcePath(const std::string& relative_path);

/// The `assay` that was built beside the tests.
std::string ProgramPath();

}  // namespace assay::test
