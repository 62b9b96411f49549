#include "assay/cli/commands.h"

#include <array>

namespace assay::cli {
namespace {

// One line a command, in the order of --help.
constexpr std::array kCommands = {
    &kInspectCommand,    &kFormatsCommand, &kFidelityCommand,   &kBenchCommand,
    &kParityCommand,     &kKvCommand,      &kCompareCommand,    &kQuantizeCommand,
    &kDequantizeCommand, &kVectorsCommand, &kCompletionCommand, &kManCommand,
};

}  // namespace

std::span<const Command* const> Commands() { return kCommands; }

}  // namespace assay::cli
