#include "tools/plan/layout_list.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hadal {
namespace {

bool IsDirectoryName(absl::string_view name) {
  return name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '+' || c == '-';
         });
}

// REQUIRES: words not empty.
absl::StatusOr<Layout> ParseLayout(const std::vector<std::string>& words, int line) {
  Layout layout{.line = line, .name = words[0]};
  if (!IsDirectoryName(layout.name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", layout.name,
                     "\" is not a valid name of a run; use letters, digits, \".\", \"_\", \"+\" "
                     "and \"-\""));
  }
  if (words.size() < 2 || !absl::SimpleAtoi(words[1], &layout.ranks) || layout.ranks < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("the name \"", layout.name, "\" must be followed by the number of ranks, 1 or more"));
  }
  for (size_t i = 2; i < words.size(); i += 2) {
    if (words[i] != "--set" || i + 1 == words.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", words[i], "\": the number of ranks must be followed by settings, --set FIELD=VALUE"));
    }
    layout.overrides.push_back(words[i + 1]);
  }
  return layout;
}

}  // namespace

absl::StatusOr<std::vector<Layout>> ParseLayouts(absl::string_view text, const std::string& path) {
  std::vector<Layout> layouts;
  std::set<std::string> names;
  int line = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++line;
    const std::vector<std::string> words = absl::StrSplit(raw, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    absl::StatusOr<Layout> layout = ParseLayout(words, line);
    if (layout.ok() && !names.insert(layout->name).second) {
      layout = absl::InvalidArgumentError(absl::StrCat("the layout \"", layout->name, "\" is defined twice"));
    }
    if (!layout.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", layout.status().message()));
    layouts.push_back(*std::move(layout));
  }
  if (layouts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, " has no layout; a line is NAME RANKS [--set FIELD=VALUE]…"));
  }
  return layouts;
}

}  // namespace hadal
