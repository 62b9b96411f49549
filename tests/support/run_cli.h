#pragma once

#include <string>
#include <vector>

namespace assay {

/// What a run of the real binary gave.
struct CliResult {
  int exit_code = -1;
  std::string out;
  std::string err;
};

/// Runs the `assay` that was built beside the tests, without a terminal.
CliResult RunCli(const std::vector<std::string>& arguments);

/// A folder that is removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  /// Of a file in it.
  std::string Path(const std::string& name) const;

 private:
  std::string path_;
};

/// A whole file as text; empty when there is none.
std::string ReadText(const std::string& path);

}  // namespace assay
