// `hadal config`: what a run would use, how two configs differ, what a field means.
//
//   hadal config show FILES… [--set a.b=c]…   the resolved config on standard output, warnings on standard error
//   hadal config diff A B                     the fields that differ; those a resume would ask about come first
//   hadal config explain [FIELD]              comment, type, default, allowed values
// Exit codes: 0 done (differences found or not), 2 bad config or usage.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback stores the exit code.  `exit_code` must outlive the parsing of `app`.
void AddConfigCommand(Command app, int& exit_code);

}  // namespace hadal
