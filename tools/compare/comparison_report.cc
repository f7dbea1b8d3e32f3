#include "tools/compare/comparison_report.h"

#include <algorithm>
#include <istream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/compare/bleu_significance.h"
#include "tools/corpus/text_input.h"
#include "tools/corpus/text_lines.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

absl::StatusOr<std::vector<std::string>> ReadLines(const std::string& path) {
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<std::istream> in, OpenText(path));
  TextLines text(*in, path);
  std::vector<std::string> lines;
  std::string line;
  while (true) {
    HADAL_ASSIGN_OR_RETURN(const bool more, text.Next(line));
    if (!more) return lines;
    lines.push_back(line);
  }
}

// A cell with its results on disk; its record is empty if it has not run.
absl::StatusOr<ComparedCell> ReadCell(const GridCell& cell, const std::string& directory) {
  ComparedCell compared{.name = cell.name, .place = cell.place};
  HADAL_ASSIGN_OR_RETURN(compared.run, ReadCellRun(directory));
  if (!PathExists(JoinPath(directory, kMetricsName))) return compared;
  absl::StatusOr<RunRecord> record = ReadRun(directory);
  if (record.ok()) {
    compared.record = *std::move(record);
  } else if (record.status().code() != absl::StatusCode::kInvalidArgument) {  // InvalidArgument: no step yet
    return record.status();
  }
  compared.result = JudgeCell(compared.run, compared.record);
  compared.instruments = ReadInstruments(compared.record);
  return compared;
}

// [cells][segments]; empty if a cell has not been translated.
absl::StatusOr<std::vector<std::vector<BleuCounts>>> ScoreTranslations(const std::string& out,
                                                                       const std::string& reference,
                                                                       std::vector<ComparedCell>& cells) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> references, ReadLines(reference));
  std::vector<std::vector<BleuCounts>> counts(cells.size());
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string path = JoinPath(JoinPath(JoinPath(out, "runs"), cells[i].name), kTranslationFile);
    if (!PathExists(path)) continue;
    HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> lines, ReadLines(path));
    if (lines.size() != references.size()) {
      return absl::InvalidArgumentError(absl::StrCat(path, " has ", lines.size(), " lines, and the reference ",
                                                     reference, " has ", references.size()));
    }
    counts[i] = CountSegments(lines, references);
    BleuCounts sum;
    for (const BleuCounts& segment : counts[i]) sum += segment;
    cells[i].bleu = BleuFromCounts(sum).score;
  }
  return counts;
}

// Marks the best cell of a column and compares it with the others.
void CompareColumn(const std::vector<size_t>& column, const std::vector<std::vector<BleuCounts>>& counts,
                   std::vector<ComparedCell>& cells) {
  const auto best = std::max_element(column.begin(), column.end(), [&](size_t a, size_t b) {
    return cells[a].bleu.value_or(-1) < cells[b].bleu.value_or(-1);
  });
  if (best == column.end() || !cells[*best].bleu) return;
  cells[*best].best_bleu = true;
  for (const size_t other : column) {
    if (other == *best || !cells[other].bleu) continue;
    cells[other].p_value = PairedBootstrapPValue(counts[*best], counts[other]);
  }
}

void CompareBleu(const std::vector<std::vector<BleuCounts>>& counts, ComparisonReport& report) {
  std::vector<bool> done(report.cells.size());
  for (size_t first = 0; first < report.cells.size(); ++first) {
    if (done[first]) continue;
    std::vector<size_t> column;  // the cells that differ from it only on the first axis
    for (size_t i = first; i < report.cells.size(); ++i) {
      const std::vector<int>&a = report.cells[first].place, &b = report.cells[i].place;
      if (!std::equal(a.begin() + 1, a.end(), b.begin() + 1)) continue;
      column.push_back(i);
      done[i] = true;
    }
    CompareColumn(column, counts, report.cells);
  }
}

// The axes from `first` on, as in the names of cells.
std::string PlaceText(const ComparisonReport& report, const std::vector<int>& place, size_t first) {
  std::string text;
  for (size_t axis = first; axis < report.axes.size(); ++axis) {
    absl::StrAppend(&text, text.empty() ? "" : ",", report.axes[axis].name, "=", report.axes[axis].labels[place[axis]]);
  }
  return text;
}

}  // namespace

std::vector<ComparisonPanel> Panels(const ComparisonReport& report) {
  // In the order of the axes, not of the runs.
  std::vector<const ComparedCell*> cells;
  for (const ComparedCell& cell : report.cells) cells.push_back(&cell);
  std::sort(cells.begin(), cells.end(), [](const ComparedCell* a, const ComparedCell* b) {
    return std::lexicographical_compare(a->place.begin() + 1, a->place.end(), b->place.begin() + 1, b->place.end());
  });
  std::stable_sort(cells.begin(), cells.end(), [](const ComparedCell* a, const ComparedCell* b) {
    const auto further = [](const std::vector<int>& place) {
      return place.begin() + std::min<size_t>(2, place.size());
    };
    return std::lexicographical_compare(further(a->place), a->place.end(), further(b->place), b->place.end());
  });
  std::vector<ComparisonPanel> panels;
  for (const ComparedCell* cell : cells) {
    const std::string name = PlaceText(report, cell->place, 2);
    if (panels.empty() || panels.back().name != name) {
      ComparisonPanel panel{.name = name, .rows = report.axes[0].labels};
      panel.columns = report.axes.size() > 1 ? report.axes[1].labels : std::vector<std::string>{""};
      panel.cells.assign(panel.rows.size(), std::vector<const ComparedCell*>(panel.columns.size()));
      panels.push_back(std::move(panel));
    }
    panels.back().cells[cell->place[0]][cell->place.size() > 1 ? cell->place[1] : 0] = cell;
  }
  return panels;
}

std::string CellText(const ComparedCell* cell) {
  if (cell == nullptr) return "";
  if (!cell->has_run()) return cell->run.end == CellEnd::kFailed ? "error" : "not run";
  if (cell->result.verdict == Verdict::kDiverged) return "diverged";
  std::string text = cell->bleu              ? absl::StrFormat("%.1f", *cell->bleu)
                     : cell->result.best_nll ? HumanValue(*cell->result.best_nll, 4)
                                             : absl::StrFormat("%s steps", HumanCount(cell->result.steps));
  const Verdict verdict = cell->result.verdict;
  if (verdict == Verdict::kFails || verdict == Verdict::kBetween || verdict == Verdict::kTooShort) {
    absl::StrAppend(&text, " ", ToString(verdict));
  }
  if (cell->p_value && *cell->p_value >= 0.05) text += " ≈";
  if (cell->run.end != CellEnd::kDone) absl::StrAppend(&text, " (", ToString(cell->run.end), ")");
  return text;
}

absl::StatusOr<ComparisonReport> MakeComparisonReport(const ComparisonGrid& grid, const std::string& out,
                                                      const std::string& reference) {
  ComparisonReport report{.title = grid.settings.title(), .note = grid.settings.note(), .axes = grid.axes};
  if (report.title.empty()) report.title = "Comparison";
  for (const GridCell& cell : grid.cells) {
    HADAL_ASSIGN_OR_RETURN(ComparedCell compared, ReadCell(cell, JoinPath(JoinPath(out, "runs"), cell.name)));
    report.cells.push_back(std::move(compared));
  }
  if (!reference.empty()) {
    HADAL_ASSIGN_OR_RETURN(const auto counts, ScoreTranslations(out, reference, report.cells));
    CompareBleu(counts, report);
  }
  return report;
}

absl::Status WriteComparison(const ComparisonReport& report, const std::string& out) {
  HADAL_RETURN_IF_ERROR(MakeDirectories(out));
  HADAL_RETURN_IF_ERROR(ReplaceFile(JoinPath(out, "comparison.html"), ComparisonToHtml(report), "new"));
  HADAL_RETURN_IF_ERROR(ReplaceFile(JoinPath(out, "comparison.json"), ComparisonToJson(report), "new"));
  return ReplaceFile(JoinPath(out, "comparison.md"), ComparisonToMarkdown(report), "new");
}

}  // namespace hadal
