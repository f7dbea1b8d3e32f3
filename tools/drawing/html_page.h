// The common parts of the HTML reports: a page with its style, tables, notes. A report is one self-contained file
// without scripts.
//
// These functions escape text; drawings (tools/drawing/svg.h) and other markup are added unchanged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/drawing/table_cell.h"

namespace hadal {

// The document from the doctype to the beginning of the body.
std::string HtmlHead(std::string_view title);
inline constexpr std::string_view kHtmlEnd = "</body></html>\n";

// A paragraph in small grey type.
std::string HtmlNote(std::string_view text);

// Rows of cells below a header; the first column is left-aligned, the others right-aligned.
class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& header);
  void Add(const std::vector<std::string>& cells);
  void AddMarked(const std::vector<TableCell>& cells);
  std::string Finish() &&;

 private:
  void Row(std::string_view tag, const std::vector<TableCell>& cells);
  std::string rows_;
};

}  // namespace hadal
