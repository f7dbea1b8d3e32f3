// Writes what a comparison's runs have come to, for programs that report it (tools/python/pyhadal/compare.py).
//
//   OUT/grid.json   title, note, the verdicts' limits, axes with their labels, and for each cell: its labels, run
//                   directory and log (relative to OUT), state, exit code, times, result and verdict
// A result that does not exist has no key; a number that is not finite is null. Times in seconds, nll in nats per
// target token. Thread safety: pure, except for reading and writing files.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "tools/compare/comparison_grid.h"

namespace hadal {

inline constexpr const char* kComparisonRecordName = "grid.json";

// The paths of a cell's run and of what its processes printed.
std::string CellDirectory(const std::string& out, const GridCell& cell);
std::string CellLogPath(const std::string& out, const GridCell& cell);

// Errors: those of reading existing files and of writing.
absl::Status WriteComparisonRecord(const ComparisonGrid& grid, const std::string& out);

}  // namespace hadal
