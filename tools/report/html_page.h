// What the HTML reports share: a page with its style, tables, notes. One file each, nothing to load, no script.
//
// Text is escaped here; drawings (tools/report/svg.h) and other markup are added as they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hadal {

// From the doctype to the beginning of the body.
std::string HtmlHead(std::string_view title);
inline constexpr std::string_view kHtmlEnd = "</body></html>\n";

// A paragraph in small grey.
std::string HtmlNote(std::string_view text);

// A cell and what it stands for: "good", "fair", "bad" colour it; "" does not.
struct HtmlCell {
  std::string text;
  std::string kind;
};

// Rows of cells below a header; the first column is on the left, the others on the right.
class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& header);
  void Add(const std::vector<std::string>& cells);
  void AddColoured(const std::vector<HtmlCell>& cells);
  std::string Finish() &&;

 private:
  void Row(std::string_view tag, const std::vector<HtmlCell>& cells);
  std::string rows_;
};

}  // namespace hadal
