// `hadal bench step [--d-model D --encoder-layers N …] [--threads T] [--repeats R] [--json]` measures a training step
// against the GEMM limit (tools/bench/bench_step.h). `hadal bench profile FILES… [--set a.b=c]… [--out FILE]` measures
// the costs that the planner needs (tools/bench/bench_profile.h). Both run alone or under mpirun.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback measures and stores the exit code.
void AddBenchCommand(Command app, int& exit_code);

}  // namespace hadal
