// One report of a grid's runs: OUT/comparison.html, .md and .json.
//
// The table is that of DeepNet's table 1: a row a value of the first axis (methods), a column a value of the second
// (depths); each combination of further axes has a table of its own. A cell shows its best validation nll, or its BLEU
// where it was translated, and its verdict (comparison_result.h). Below: what each run took, loss curves overlaid, and
// the depth's instruments side by side. BLEU: of OUT/runs/CELL/test.translation against the reference; in each column
// the best is compared with the others by the paired bootstrap (bleu_significance.h).
// The HTML is one file, nothing to load. The JSON has every number of the tables, the Markdown the tables.
// Thread safety: pure but for reading files.
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
#include "tools/report/run_record.h"

namespace hadal {

inline constexpr const char* kTranslationFile = "test.translation";

struct ComparedCell {
  std::string name;
  std::vector<int> place;  // [axes]
  CellRun run;
  RunRecord record;  // no steps: it has not run
  CellResult result;
  CellInstruments instruments;
  std::optional<double> bleu;
  std::optional<double> p_value;  // of the difference to the best BLEU of its column
  bool best_bleu = false;         // of its column

  bool has_run() const { return !record.steps.empty(); }
};

struct ComparisonReport {
  std::string title, note;
  std::vector<GridAxis> axes;
  std::vector<ComparedCell> cells;  // in the grid's order
};

// A table of the report: the cells of one combination of the axes behind the second.
struct ComparisonPanel {
  std::string name;                                     // "warmup=none,depth=18"; "" where there are two axes at most
  std::vector<std::string> rows, columns;               // labels; a single column "" where there is one axis
  std::vector<std::vector<const ComparedCell*>> cells;  // [rows][columns]; null: not in the grid
};
// Views of `report`.
std::vector<ComparisonPanel> Panels(const ComparisonReport& report);

// What a table shows of a cell: "4.117", "28.9", "4.95 between", "5.20 fails", "diverged", "not run", "" for null.
std::string CellText(const ComparedCell* cell);

// Reads what is there of the grid's runs. `reference`: a file of the test set's references, or "".
// Errors: those of reading files that exist; InvalidArgument where a translation has not as many lines as the
// reference.
absl::StatusOr<ComparisonReport> MakeComparisonReport(const ComparisonGrid& grid, const std::string& out,
                                                      const std::string& reference);

std::string ComparisonToHtml(const ComparisonReport& report);
std::string ComparisonToJson(const ComparisonReport& report);
std::string ComparisonToMarkdown(const ComparisonReport& report);

// Writes the three files into `out`.
absl::Status WriteComparison(const ComparisonReport& report, const std::string& out);

}  // namespace hadal
