#include "tools/drawing/html_page.h"

#include "absl/strings/str_cat.h"
#include "tools/drawing/svg.h"

namespace hadal {
namespace {

constexpr const char* kStyle = R"(<style>
body { font: 14px/1.5 sans-serif; color: #222; max-width: 1180px; margin: 24px auto; padding: 0 16px; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 36px 0 8px; } h3 { font-size: 15px; margin: 22px 0 6px; }
table { border-collapse: collapse; margin: 8px 0; }
th, td { padding: 3px 10px; border-bottom: 1px solid #e2e2e2; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { color: #555; font-weight: normal; }
.good { background: #dff3e3; } .fair { background: #fdf1cf; } .bad { background: #f9dcdc; }
.charts { display: flex; flex-wrap: wrap; gap: 12px; }
.note { color: #666; font-size: 13px; }
.wide { overflow-x: auto; }
pre { margin: 4px 0; white-space: pre-wrap; }
svg { display: block; max-width: 100%; height: auto; }
</style>
)";

std::vector<TableCell> Plain(const std::vector<std::string>& texts) {
  std::vector<TableCell> cells;
  cells.reserve(texts.size());
  for (const std::string& text : texts) cells.push_back({.text = text});
  return cells;
}

}  // namespace

std::string HtmlHead(std::string_view title) {
  return absl::StrCat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", EscapeMarkup(title),
                      "</title>\n", kStyle, "</head><body>\n");
}

std::string HtmlNote(std::string_view text) { return absl::StrCat("<p class=\"note\">", EscapeMarkup(text), "</p>\n"); }

HtmlTable::HtmlTable(const std::vector<std::string>& header) { Row("th", Plain(header)); }

void HtmlTable::Add(const std::vector<std::string>& cells) { Row("td", Plain(cells)); }

void HtmlTable::AddMarked(const std::vector<TableCell>& cells) { Row("td", cells); }

std::string HtmlTable::Finish() && { return absl::StrCat("<div class=\"wide\"><table>\n", rows_, "</table></div>\n"); }

void HtmlTable::Row(std::string_view tag, const std::vector<TableCell>& cells) {
  absl::StrAppend(&rows_, "<tr>");
  for (const TableCell& cell : cells) {
    absl::StrAppend(&rows_, "<", std::string(tag));
    if (!cell.kind.empty()) absl::StrAppend(&rows_, " class=\"", cell.kind, "\"");
    const std::string text = EscapeMarkup(cell.text);
    absl::StrAppend(&rows_, ">", cell.best ? absl::StrCat("<b>", text, "</b>") : text, "</", std::string(tag), ">");
  }
  absl::StrAppend(&rows_, "</tr>\n");
}

}  // namespace hadal
