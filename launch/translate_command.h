// `hadal translate` and `hadal score` (tools/translate/translate.h and tools/translate/score.h), run in this process's
// world.
#pragma once

#include "CLI/CLI.hpp"

namespace hadal {

// Register the subcommands; their callbacks store the exit code.
void AddTranslateCommand(CLI::App& app, int& exit_code);
void AddScoreCommand(CLI::App& app, int& exit_code);

}  // namespace hadal
