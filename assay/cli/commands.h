#pragma once

#include "assay/cli/command.h"

namespace assay::cli {

extern const Command kFidelityCommand;
extern const Command kFormatsCommand;
extern const Command kCompletionCommand;
extern const Command kInspectCommand;
extern const Command kManCommand;

}  // namespace assay::cli
