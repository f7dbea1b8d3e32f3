// Runs the cells of a grid as child processes, one after the other, within the grid's budget.
//
//   OUT/runs/CELL/           the run directory of `hadal train`, and cell.json (tools/compare/comparison_result.h)
//   OUT/logs/CELL.log        what the child printed
// After its run a finished cell may translate a test set; that time counts neither for the run's time nor for the
// budget. A run that exceeds its time or the budget, or during which a signal arrives, gets SIGUSR1 to save and stop.
// If the run does not react, it continues; a second Ctrl-C ends this process, and the child then saves and ends.
// Threads: one; the process may have no other threads. Blocking until the last cell has ended.
#pragma once

#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/compare/comparison_grid.h"
#include "tools/output/staged_output.h"

namespace hadal {

struct ComparisonOptions {
  std::string out;                // directory of the comparison
  std::string program;            // path of the `hadal` that trains
  std::vector<int> chosen;        // numbers of cells, from 1 in the grid's order; empty: all
  int ranks = 1;                  // for each run that does not set its own number
  bool accept_changes = false;    // continue cells whose config has changed
  bool judged = true;             // each run is judged (comparison_result.h); else only its speed is printed
  std::string test_source;        // translated by every finished cell (kTranslationFile in its directory); "": none
  std::function<bool()> stopped;  // whether a signal has asked to stop
};

struct ComparisonOutcome {
  int chosen = 0;        // cells of this call
  int finished = 0;      // chosen cells that are done, diverged or cut (CellEnd), in this call or an earlier one
  int failed = 0;        // chosen cells whose run ended with an error, and finished ones whose translation failed
  int changed = 0;       // chosen cells that were not run, because their directories hold runs of other configs
  int waiting = 0;       // chosen cells that have not run to the end: the budget was used up, or a signal arrived
  bool stopped = false;  // whether a signal arrived
  std::optional<OutputFolder> folder;  // the comparison's, held until the report is written
};

// Errors: InvalidArgument for a number that no cell has, or a corpus that does not fit a cell's config; file errors. A
// failed cell is not an error: it is counted, and the next cell runs.
absl::StatusOr<ComparisonOutcome> RunComparison(const ComparisonGrid& grid, const ComparisonOptions& options,
                                                std::ostream& log);

// Prints the cells with their numbers, expected shares of the work, and states.
absl::Status ListComparison(const ComparisonGrid& grid, const ComparisonOptions& options, std::ostream& out);

}  // namespace hadal
