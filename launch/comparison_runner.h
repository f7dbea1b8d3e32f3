// Runs the cells of a grid as child processes, one after the other, within the grid's budget.
//
//   OUT/runs/CELL/           the run directory, as of `hadal train`, and cell.json (tools/compare/comparison_run.h)
//   OUT/logs/CELL.log        what the child printed
// A finished cell may then translate a test set; that time counts neither for its hours nor for the budget.
// A run whose time is over is asked to save; so is the one that runs when a signal comes. A child that does not react
// to that goes on: a second Ctrl-C ends this process, and the child with it, saving.
// Threads: one, and no other may run in the process. Blocking until the last cell has ended.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/compare/comparison_grid.h"

namespace hadal {

struct ComparisonOptions {
  std::string out;                // directory of the comparison
  std::string program;            // path of the `hadal` that trains
  std::vector<int> chosen;        // numbers of cells, from 1 in the grid's order; empty: all
  int ranks = 1;                  // of each run that has no number of its own
  bool accept_changes = false;    // go on with cells whose config has changed
  std::string test_source;        // translated by every finished cell (kTranslationFile in its directory); "": none
  std::function<bool()> stopped;  // whether a signal asked to stop
};

struct ComparisonOutcome {
  int chosen = 0;    // cells of this call
  int finished = 0;  // of them those that are done, diverged or cut, earlier calls included
  int failed = 0;    // ended with an error
  int changed = 0;   // left alone, because their directories hold runs of other configs
  int waiting = 0;   // not (fully) run: the budget was used up, or a signal came
  bool stopped = false;
};

std::string CellDirectory(const std::string& out, const GridCell& cell);

// Errors: InvalidArgument for a number that no cell has, a corpus that does not fit; what the file system says. A cell
// that fails is no error: it is counted, and the next one runs.
absl::StatusOr<ComparisonOutcome> RunComparison(const ComparisonGrid& grid, const ComparisonOptions& options,
                                                std::ostream& log);

// The cells with numbers, expected shares of the work, and what has become of them.
absl::Status ListComparison(const ComparisonGrid& grid, const ComparisonOptions& options, std::ostream& out);

}  // namespace hadal
