// `hadal compare GRID.textproto [--out DIR] [--run N…] [--seeds N…] [--set a.b=c]… [--ranks R]
//                [--accept-changes] [--list] [--test-source FILE --test-reference FILE] [--report-only]`
//
// Runs every cell of a grid (configs/compare.proto) as `hadal train … --run-dir OUT/runs/CELL`, one after the other,
// cheapest first, and prints how each ended. A later call continues: it skips finished cells, resumes interrupted ones,
// and leaves a cell alone whose config has changed, naming the fields. At the end, or at any time with --report-only,
// it writes OUT/grid.json (tools/compare/comparison_record.h), from which `pyhadal compare` (tools/python) makes
// OUT/comparison.{html,md,json}. SIGINT, SIGTERM and SIGUSR1 are passed on to the running cell, which saves; the
// command then exits with 85.
// Exit codes: 0 every cell has run or the budget is used up, 1 a cell failed or has another config, 2 bad grid or
// usage, or a Python package is missing, 85 stopped.
#pragma once

#include "tools/command_line.h"

namespace hadal {

// Registers the subcommand; its callback stores the exit code.
void AddCompareCommand(Command app, int& exit_code);

}  // namespace hadal
