// `hadal plan FILES… [--set a.b=c]… [--ranks N] [--threads T] [--device cpu|cuda] [--gflops X] [--vocabulary V]
// [--sublayers] [--json]`
//
// Reports what a training run of this config would look like: stages, parameters, shares of the cost, memory by
// category and rank (the arena's bytes), predicted time, bubble, live micro-batches, borders, residual gains. It trains
// and allocates nothing. For a GPU (--device cuda; none is needed) memory is the device's, to the byte of what a run
// allocates; times are given only with --gflops. A config that does not fit pipeline.memory_limit_bytes is refused,
// with the nearest one that does. Exit codes: 0 done, 1 it does not fit, 2 bad config or usage.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback stores the exit code.
void AddPlanCommand(Command app, int& exit_code);

}  // namespace hadal
