// The subcommands of hadal. Each is described at the top of its source file, or of that file's header.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Each registers its subcommand, whose callback does the work and stores the exit code; `exit_code` must outlive the
// parsing of `app`.
void AddPrepareCommand(Command app, int& exit_code);
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
void AddBleuCommand(Command app, int& exit_code);
void AddChrfCommand(Command app, int& exit_code);
void AddWerCommand(Command app, int& exit_code);
void AddConfigCommand(Command app, int& exit_code);
void AddConfigCellsCommand(Command app, int& exit_code);  // REQUIRES: AddConfigCommand
void AddCheckpointCommand(Command app, int& exit_code);
void AddInspectCommand(Command app, int& exit_code);
void AddInspectSimilarityCommand(Command app, int& exit_code);  // REQUIRES: AddInspectCommand
void AddCompareCommand(Command app, int& exit_code);
void AddSweepCommand(Command app, int& exit_code);
void AddSummaryCommand(Command app, int& exit_code);
void AddReportCommand(Command app, int& exit_code);
void AddScheduleCommand(Command app, int& exit_code);
void AddSimulateCommand(Command app, int& exit_code);

}  // namespace hadal
