#include "tests/support/run_cli.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/support/paths.h"

namespace assay {

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "assay-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Path(const std::string& name) const { return path_ + "/" + name; }

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

CliResult RunCli(const std::vector<std::string>& arguments,
                 std::optional<uint64_t> max_file_bytes) {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  std::vector<char*> argv;
  std::vector<std::string> words = {test::ProgramPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    const int out_file = open(out.c_str(), O_WRONLY | O_CREAT, 0600);
    const int err_file = open(err.c_str(), O_WRONLY | O_CREAT, 0600);
    if (out_file < 0 || err_file < 0 || dup2(out_file, STDOUT_FILENO) < 0 ||
        dup2(err_file, STDERR_FILENO) < 0) {
      _exit(126);
    }
    if (max_file_bytes) {
      const rlimit limit{*max_file_bytes, *max_file_bytes};
      if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(126);
    }
    execv(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) throw std::runtime_error("cannot run");
  CliResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = ReadText(out);
  result.err = ReadText(err);
  return result;
}

}  // namespace assay
