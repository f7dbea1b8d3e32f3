#include "tools/compare/comparison_text.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

std::string Number(const std::optional<double>& value, const char* none = "–") {
  return value ? HumanValue(*value, 3) : none;
}

const char* KindOf(const ComparedCell* cell) {
  if (cell == nullptr || !cell->has_run()) return "";
  switch (cell->result.verdict) {
    case Verdict::kTrains:
      return "good";
    case Verdict::kBetween:
    case Verdict::kTooShort:
      return "fair";
    case Verdict::kFails:
    case Verdict::kDiverged:
      return "bad";
    case Verdict::kUnknown:
      break;
  }
  return "";
}

std::string Hours(double seconds) { return absl::StrFormat("%.3f", seconds / 3600); }

}  // namespace

std::string RuleText(const ComparisonReport& report) {
  std::set<double> levels;
  bool bleu = false;
  for (const ComparedCell& cell : report.cells) {
    if (cell.run.unigram_nll) levels.insert(*cell.run.unigram_nll);
    bleu = bleu || cell.bleu;
  }
  std::string text = absl::StrFormat(
      "A cell shows its best validation nll%s. A method trains if that is at least %g below the nll of a model "
      "that knows only the "
      "target's token frequencies%s; it fails if it was never %g below that, but the run was "
      "too short if its training nll was still falling then; it diverged if its numbers were not finite, and is "
      "between otherwise.",
      bleu ? ", or its BLEU on the test set" : "", kTrainsBelow,
      levels.size() == 1 ? absl::StrFormat(" (%.3f on these sentences)", *levels.begin()) : "", kFailsBelow);
  if (bleu) {
    text +=
        " The best BLEU of a column is bold; ≈: the paired bootstrap does not distinguish it from the best (p ≥ 0.05).";
  }
  return text;
}

std::string InstrumentNote() {
  return "‖ΔF‖: change of the decoder's output on a few fixed sentences since the start, per target token. "
         "Gradients at the first "
         "step: of the activations after the stack's first sublayer over those after its last (1: it arrives, 0: it "
         "vanishes on its "
         "way down), and before a LayerNorm over after it (the skip multiplies it by the residual gain). At the "
         "end: mean cosine "
         "between the streams after neighbouring sublayers; share of hidden units that ReLU passes.";
}

std::vector<std::string> PanelHeader(const ComparisonReport& report, const ComparisonPanel& panel) {
  if (report.axes.size() == 1) return {report.axes[0].name, "result"};
  std::vector<std::string> header = {absl::StrCat(report.axes[0].name, " \\ ", report.axes[1].name)};
  header.insert(header.end(), panel.columns.begin(), panel.columns.end());
  return header;
}

std::vector<TableCell> PanelRow(const ComparisonPanel& panel, size_t row) {
  std::vector<TableCell> cells = {{.text = panel.rows[row]}};
  for (const ComparedCell* cell : panel.cells[row]) {
    cells.push_back({CellText(cell), KindOf(cell), cell != nullptr && cell->best_bleu});
  }
  return cells;
}

std::vector<std::string> RunHeader() {
  return {"run",     "state", "steps", "loss",     "best validation nll", "at step",  "below unigram",
          "verdict", "BLEU",  "p",     "tokens/s", "wall hours",          "CPU hours"};
}

std::vector<std::string> RunCells(const ComparedCell& cell) {
  const bool ran = cell.has_run();
  const auto four = [](const std::optional<double>& value) { return value ? HumanValue(*value, 4) : "–"; };
  double seconds = 0, tokens = 0;
  for (const StepMetrics& step : cell.record.steps) {
    seconds += step.step_seconds;
    tokens += static_cast<double>(step.target_tokens);
  }
  return {cell.name,
          cell.run.end == CellEnd::kNone ? "not run" : ToString(cell.run.end),
          ran ? HumanCount(cell.result.steps) : "–",
          four(cell.result.loss),
          four(cell.result.best_nll),
          cell.result.best_nll ? HumanCount(cell.result.best_step) : "–",
          cell.result.below_unigram ? absl::StrFormat("%.3f", *cell.result.below_unigram) : "–",
          ran ? ToString(cell.result.verdict) : "–",
          cell.bleu ? absl::StrFormat("%.1f", *cell.bleu) : "–",
          four(cell.p_value),
          seconds > 0 ? HumanRate(tokens / seconds) : "–",
          Hours(cell.run.wall_seconds),
          Hours(cell.run.cpu_seconds)};
}

std::vector<std::string> InstrumentHeader() {
  std::vector<std::string> header = {"run"};
  for (const InstrumentColumn& column : kInstrumentColumns) header.push_back(column.title);
  return header;
}

std::vector<std::string> InstrumentCells(const ComparedCell& cell) {
  std::vector<std::string> cells = {cell.name};
  for (const InstrumentColumn& column : kInstrumentColumns) cells.push_back(Number(cell.instruments.*column.value));
  return cells;
}

std::vector<const ComparedCell*> InTableOrder(const std::vector<ComparisonPanel>& panels) {
  std::vector<const ComparedCell*> cells;
  for (const ComparisonPanel& panel : panels) {
    for (size_t column = 0; column < panel.columns.size(); ++column) {
      for (const std::vector<const ComparedCell*>& row : panel.cells) {
        if (row[column] != nullptr) cells.push_back(row[column]);
      }
    }
  }
  return cells;
}

}  // namespace hadal
