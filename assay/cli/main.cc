#include <csignal>

#include "assay/cli/app.h"

int main(int argc, char** argv) {
  // A file that may not grow is then an error of the write that met it, cleaned up after as any.
  std::signal(SIGXFSZ, SIG_IGN);
  return assay::cli::RunCommandLine(argc, argv);
}
