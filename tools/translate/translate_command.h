// `hadal translate`, `hadal sample` (tools/translate/translate.h), `hadal evaluate` (tools/evaluate/evaluate.h) and
// `hadal score` (tools/translate/score.h), run in this process's world.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Register the subcommands; their callbacks store the exit code.
void AddTranslateCommand(Command app, int& exit_code);
void AddSampleCommand(Command app, int& exit_code);
void AddEvaluateCommand(Command app, int& exit_code);
void AddScoreCommand(Command app, int& exit_code);

}  // namespace hadal
