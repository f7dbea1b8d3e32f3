// The report of `hadal compare`, which trains one model for each combination of settings and compares the results:
// OUT/comparison.html, .md and .json.
//
// A grid (comparison_grid.h) has axes, for example methods and depths, each with several values. A cell is one
// combination of values, trained as one run. Tables are laid out as DeepNet's table 1: one row per value of the first
// axis, one column per value of the second; each combination of further axes has a table of its own. A table shows for
// each cell its best validation nll, or its BLEU if it was translated, and its verdict (comparison_result.h). Below the
// tables: the cost of each run, overlaid loss curves, and each run's measurements over the depth
// (comparison_instruments.h) side by side.
// BLEU compares OUT/runs/CELL/test.translation with the reference; in each column the best is tested against the others
// by the paired bootstrap (bleu_significance.h).
// The HTML is one self-contained file. The JSON has every number of the tables, the Markdown the tables.
// Thread safety: pure, except for reading and writing files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/compare/comparison_grid.h"
#include "tools/compare/comparison_instruments.h"
#include "tools/compare/comparison_result.h"
#include "tools/compare/comparison_run.h"
#include "tools/output/run_record.h"

namespace hadal {

inline constexpr const char* kTranslationFile = "test.translation";

struct ComparedCell {
  std::string name;
  std::vector<int> place;  // [axes]
  CellRun run;
  RunRecord record;  // without steps: it has not run
  CellResult result;
  CellInstruments instruments;
  std::optional<double> bleu;
  std::optional<double> p_value;  // of the difference to the best BLEU in its column
  bool best_bleu = false;         // in its column

  bool has_run() const { return !record.steps.empty(); }
};

struct ComparisonReport {
  std::string title, note;
  std::vector<GridAxis> axes;
  std::vector<ComparedCell> cells;  // in the grid's order
};

// A table of the report: the cells of one combination of the third and later axes.
struct ComparisonPanel {
  std::string name;                                     // "warmup=none,depth=18"; "" with at most two axes
  std::vector<std::string> rows, columns;               // labels; with one axis a single column ""
  std::vector<std::vector<const ComparedCell*>> cells;  // [rows][columns]; null: not in the grid
};
// The tables of `report`, as views of it.
std::vector<ComparisonPanel> Panels(const ComparisonReport& report);

// The text of a cell in a table: "4.117", "28.9", "4.95 between", "5.20 fails", "7.10 too short", "diverged",
// "not run", "" for null.
std::string CellText(const ComparedCell* cell);

// Reads what exists of the grid's runs. `reference`: a file of the test set's references, or "".
// Errors: those of reading existing files; InvalidArgument if a translation and the reference differ in their number of
// lines.
absl::StatusOr<ComparisonReport> MakeComparisonReport(const ComparisonGrid& grid, const std::string& out,
                                                      const std::string& reference);

std::string ComparisonToHtml(const ComparisonReport& report);
std::string ComparisonToJson(const ComparisonReport& report);
std::string ComparisonToMarkdown(const ComparisonReport& report);

// Writes the three files into `out`.
absl::Status WriteComparison(const ComparisonReport& report, const std::string& out);

}  // namespace hadal
