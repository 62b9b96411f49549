#pragma once

#include <cstdint>
#include <optional>
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
/// `max_file_bytes`: no file of the program's may grow past it (RLIMIT_FSIZE).
CliResult RunCli(const std::vector<std::string>& arguments,
                 std::optional<uint64_t> max_file_bytes = std::nullopt);

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
