// The common parts of the Markdown reports: escaped text and tables.
//
// Names of runs and settings come from the user's files and may contain anything. MarkdownTable escapes its cells;
// callers escape what they add elsewhere.
// Threads: pure; one at a time for a table.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/drawing/table_cell.h"

namespace hadal {

// Escapes text so that Markdown (CommonMark, with GitHub's tables) shows it as it is, in one line: markup, links, HTML
// and the borders of cells. Control characters and bytes that are not UTF-8 become text (runtime/printable.h).
std::string EscapeMarkdown(std::string_view text);

// Rows of cells below a header; the first column is left-aligned, the others right-aligned.
class MarkdownTable {
 public:
  explicit MarkdownTable(const std::vector<std::string>& header);
  void Add(const std::vector<std::string>& cells);
  void AddMarked(const std::vector<TableCell>& cells);
  std::string Finish() && { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace hadal
