// The report of a comparison as one self-contained HTML file: tables and inline SVG.
#include "absl/strings/str_cat.h"
#include "tools/compare/comparison_charts.h"
#include "tools/compare/comparison_report.h"
#include "tools/compare/comparison_text.h"
#include "tools/drawing/html_page.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

std::string PanelTable(const ComparisonReport& report, const ComparisonPanel& panel) {
  HtmlTable table(PanelHeader(report, panel));
  for (size_t row = 0; row < panel.rows.size(); ++row) table.AddMarked(PanelRow(panel, row));
  return std::move(table).Finish();
}

}  // namespace

std::string ComparisonToHtml(const ComparisonReport& report) {
  std::string page = HtmlHead(absl::StrCat("hadal compare: ", report.title));
  absl::StrAppend(&page, "<h1>", EscapeMarkup(report.title), "</h1>\n");
  if (!report.note.empty()) absl::StrAppend(&page, "<p>", EscapeMarkup(report.note), "</p>\n");
  page += HtmlNote(RuleText(report));
  const std::vector<ComparisonPanel> panels = Panels(report);
  for (const ComparisonPanel& panel : panels) {
    if (!panel.name.empty()) absl::StrAppend(&page, "<h3>", EscapeMarkup(panel.name), "</h3>\n");
    page += PanelTable(report, panel);
  }
  page += "<h2>Curves</h2>\n";
  for (const ComparisonPanel& panel : panels) page += CurvesMarkup(report, panel);
  page += "<h2>Depth</h2>\n";
  HtmlTable instruments(InstrumentHeader());
  for (const ComparedCell* cell : InTableOrder(panels)) {
    if (cell->has_run()) instruments.Add(InstrumentCells(*cell));
  }
  page += std::move(instruments).Finish() + HtmlNote(InstrumentNote());
  for (const ComparisonPanel& panel : panels) page += InstrumentsMarkup(report, panel);
  page += "<h2>Runs</h2>\n";
  HtmlTable runs(RunHeader());
  for (const ComparedCell* cell : InTableOrder(panels)) runs.Add(RunCells(*cell));
  page += std::move(runs).Finish();
  page +=
      HtmlNote("`hadal report` on a run's directory draws its depth over all recorded steps, and where its time went.");
  page += kHtmlEnd;
  return page;
}

}  // namespace hadal
