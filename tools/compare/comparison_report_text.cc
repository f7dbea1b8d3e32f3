// The report of a comparison as Markdown and as JSON.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/compare/comparison_report.h"
#include "tools/compare/comparison_text.h"
#include "tools/drawing/markdown.h"
#include "tools/output/human_units.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

void AppendPanel(const ComparisonReport& report, const ComparisonPanel& panel, std::string& text) {
  if (!panel.name.empty()) absl::StrAppend(&text, "\n", EscapeMarkdown(panel.name), "\n");
  MarkdownTable table(PanelHeader(report, panel));
  for (size_t row = 0; row < panel.rows.size(); ++row) table.AddMarked(PanelRow(panel, row));
  absl::StrAppend(&text, "\n", std::move(table).Finish());
}

OrderedJson ToJson(const CellInstruments& instruments) {
  OrderedJson json = OrderedJson::object();
  for (const InstrumentColumn& column : kInstrumentColumns) {
    if (const std::optional<double> value = instruments.*column.value) json[column.name] = *value;
  }
  return json;
}

OrderedJson ToJson(const ComparisonReport& report, const ComparedCell& cell) {
  OrderedJson json{{"name", cell.name}};
  for (size_t axis = 0; axis < report.axes.size(); ++axis) {
    json["labels"][report.axes[axis].name] = report.axes[axis].labels[cell.place[axis]];
  }
  json["state"] = ToString(cell.run.end);
  json["wall_hours"] = cell.run.wall_seconds / 3600;
  json["cpu_hours"] = cell.run.cpu_seconds / 3600;
  if (!cell.has_run()) return json;
  const auto add = [&](const char* key, const std::optional<double>& value) {
    if (value) json[key] = *value;
  };
  json["model"] = cell.record.model;
  json["parameters"] = cell.record.parameters;
  json["steps"] = cell.result.steps;
  json["verdict"] = ToString(cell.result.verdict);
  add("loss", cell.result.loss);
  add("best_validation_nll", cell.result.best_nll);
  if (cell.result.best_nll) json["best_step"] = cell.result.best_step;
  add("unigram_nll", cell.run.unigram_nll);
  add("below_unigram", cell.result.below_unigram);
  add("bleu", cell.bleu);
  add("p_value", cell.p_value);
  for (const ValidationRecord& validation : cell.record.validations) {
    json["validation_nll"].push_back({validation.step, validation.nll});
  }
  json["instruments"] = ToJson(cell.instruments);
  return json;
}

}  // namespace

std::string ComparisonToMarkdown(const ComparisonReport& report) {
  std::string text = absl::StrCat("# ", EscapeMarkdown(report.title), "\n");
  if (!report.note.empty()) absl::StrAppend(&text, "\n", EscapeMarkdown(report.note), "\n");
  absl::StrAppend(&text, "\n", RuleText(report), "\n");
  const std::vector<ComparisonPanel> panels = Panels(report);
  for (const ComparisonPanel& panel : panels) AppendPanel(report, panel, text);
  MarkdownTable runs(RunHeader()), instruments(InstrumentHeader());
  for (const ComparedCell* cell : InTableOrder(panels)) {
    runs.Add(RunCells(*cell));
    if (cell->has_run()) instruments.Add(InstrumentCells(*cell));
  }
  return absl::StrCat(text, "\n## Runs\n\n", std::move(runs).Finish(), "\n## Instruments\n\n",
                      std::move(instruments).Finish(), "\n", InstrumentNote(), "\n");
}

std::string ComparisonToJson(const ComparisonReport& report) {
  // One line per cell: small, and easy to compare. A number that is not finite is null.
  const auto text = [](const OrderedJson& json) {
    return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  };
  const OrderedJson rule = {{"trains_below_unigram", kTrainsBelow}, {"fails_below_unigram", kFailsBelow}};
  std::vector<std::string> cells;
  for (const ComparedCell& cell : report.cells) cells.push_back(text(ToJson(report, cell)));
  return absl::StrCat("{\"title\":", text(report.title), ",\n\"note\":", text(report.note), ",\n\"rule\":", text(rule),
                      ",\n\"cells\":[\n", absl::StrJoin(cells, ",\n"), "\n]}\n");
}

}  // namespace hadal
