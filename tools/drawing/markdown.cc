#include "tools/drawing/markdown.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "runtime/printable.h"

namespace hadal {
namespace {

// Whether the character at `i` would be markup. Between letters and digits "_" is none, nor is "\" before them or a
// space.
bool IsMarkup(std::string_view text, size_t i) {
  const auto is_word = [&](size_t at) {
    return at < text.size() && (absl::ascii_isalnum(text[at]) || static_cast<unsigned char>(text[at]) >= 0x80);
  };
  if (text[i] == '_') return i == 0 || !is_word(i - 1) || !is_word(i + 1);
  if (text[i] == '\\') return i + 1 == text.size() || absl::ascii_ispunct(text[i + 1]);
  return std::string_view("|`*[]~$").find(text[i]) != std::string_view::npos;
}

}  // namespace

std::string EscapeMarkdown(std::string_view text) {
  const std::string printable = Printable(text);
  std::string escaped;
  for (size_t i = 0; i < printable.size(); ++i) {
    if (IsMarkup(printable, i)) escaped += '\\';
    escaped += printable[i];
  }
  return absl::StrReplaceAll(escaped, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\n", " "}, {"\t", " "}});
}

MarkdownTable::MarkdownTable(const std::vector<std::string>& header) {
  Add(header);
  for (size_t i = 0; i < header.size(); ++i) absl::StrAppend(&text_, i == 0 ? "|---" : "|---:");
  absl::StrAppend(&text_, "|\n");
}

void MarkdownTable::Add(const std::vector<std::string>& cells) {
  for (const std::string& cell : cells) absl::StrAppend(&text_, "| ", EscapeMarkdown(cell), " ");
  absl::StrAppend(&text_, "|\n");
}

void MarkdownTable::AddMarked(const std::vector<TableCell>& cells) {
  for (const TableCell& cell : cells) {
    const char* mark = cell.best ? "**" : "";
    absl::StrAppend(&text_, "| ", mark, EscapeMarkdown(cell.text), mark, " ");
  }
  absl::StrAppend(&text_, "|\n");
}

}  // namespace hadal
