// Subcommands of hadal that have no header of their own; each is described at the top of its source file.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Each registers its subcommand, whose callback does the work and stores the exit code; `exit_code` must outlive the
// parsing of `app`.
void AddPlanCommand(Command app, int& exit_code);
void AddTrainCommand(Command app, int& exit_code);
void AddSuperviseCommand(Command app, int& exit_code);
void AddDoctorCommand(Command app, int& exit_code);
void AddBenchCommand(Command app, int& exit_code);
void AddTranslateCommand(Command app, int& exit_code);
void AddSampleCommand(Command app, int& exit_code);
void AddEvaluateCommand(Command app, int& exit_code);
void AddScoreCommand(Command app, int& exit_code);
void AddEmbedCommand(Command app, int& exit_code);
void AddCompareCommand(Command app, int& exit_code);
void AddConfigCellsCommand(Command app, int& exit_code);  // REQUIRES: AddConfigCommand
void AddSweepCommand(Command app, int& exit_code);

}  // namespace hadal
