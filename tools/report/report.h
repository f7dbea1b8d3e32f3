// `hadal report RUN…` draws runs as one HTML page: diagnoses, curves, translations, depth, times, memory, scaling.
//
//   hadal report run                              run/report.html, .json and .md
//   hadal report run --profile here.textproto     with predictions, as `hadal summary`; --machine likewise
//   hadal report run1 run2 run4 --out scaling     scaling.html, .json and .md: compares the runs
// pyhadal draws (tools/python/pyhadal/report.py) what `hadal summary --format json` says. The page is one file without
// scripts; the JSON is the summary's, the Markdown has its tables.
// Exit codes: 0, 1 a file cannot be written, 2 usage, or a Python package is missing.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/command_line.h"
#include "tools/plan/cost_files.h"

namespace hadal {

// Writes the runs' summary to STEM.txt, and their page beside it if Python has the packages; else a message says how to
// install them. Returns what was written, a path a line.
// Errors: MakeSummary's; file errors.
absl::StatusOr<std::string> WriteReport(const std::vector<std::string>& directories, const std::string& stem,
                                        const CostFiles& costs = {});

// Registers the subcommand.
void AddReportCommand(Command app, int& exit_code);

}  // namespace hadal
