// `hadal sweep LAYOUTS CONFIG… [--set a.b=c]… [--out DIR] [--submit "sbatch … sweep.sbatch" | --report-only]`
//
// Trains one config on each layout of a list (tools/plan/layout_list.h) and writes the scaling report: how efficient
// more ranks are, and where the rest of the time goes.
//
//   OUT/runs/NAME                    the run directory of a layout, OUT/logs/NAME.log what it printed
//   OUT/scaling.{txt,html,json,md}   the report of all layouts that have run; without Python the text alone
//   OUT/submitted                    what the command of the last --submit printed
// Layouts run one after the other, under mpirun if they have several ranks. A later call continues: it skips finished
// layouts and resumes interrupted ones. With --submit nothing runs here: unfinished layouts are submitted as a job
// array, unless squeue shows, or cannot rule out, that the last one has not ended. From then on, and with
// --report-only, a call without --submit trains nothing either: it writes the report and names the layouts that have
// not finished.
// Exit codes: 0 all layouts have run (or were submitted, or are reported), 1 one failed or has another config, or an
// array is pending, 2 bad list or config, or nothing to report, 85 stopped.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback stores the exit code.
void AddSweepCommand(Command app, int& exit_code);

}  // namespace hadal
