#pragma once

#include "assay/cli/command.h"

namespace assay::cli {

extern const Command kBenchCommand;
extern const Command kFidelityCommand;
extern const Command kFormatsCommand;
extern const Command kCompareCommand;
extern const Command kParityCommand;
extern const Command kQuantizeCommand;
extern const Command kDequantizeCommand;
extern const Command kVectorsCommand;
extern const Command kCompletionCommand;
extern const Command kInspectCommand;
extern const Command kKvCommand;
extern const Command kManCommand;

}  // namespace assay::cli
