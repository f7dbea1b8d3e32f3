#include "tools/plan/layout_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/check.h"

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

// "0-3,8" of ascending numbers.
std::string Ranges(const std::set<int>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int first = *at;
    int last = first;
    while (++at != numbers.end() && *at == last + 1) last = *at;
    absl::StrAppend(&text, text.empty() ? "" : ",", first);
    if (last > first) absl::StrAppend(&text, "-", last);
  }
  return text;
}

std::string Counted(const std::string& noun, const std::set<int>& numbers) {
  return absl::StrCat(noun, numbers.size() == 1 ? " " : "s ", Ranges(numbers));
}

// "stages 0-1: replicas 0-1; stage 2: replica 0", stages with the same replicas taken together.
std::string Parts(const GridShape& grid, const std::set<int>& ranks) {
  std::map<int, std::set<int>> replicas_of;  // by stage
  for (const int rank : ranks) replicas_of[grid.StageOf(rank)].insert(grid.ReplicaOf(rank));
  std::map<std::set<int>, std::set<int>> stages_with;  // by replicas
  for (const auto& [stage, replicas] : replicas_of) stages_with[replicas].insert(stage);
  std::vector<std::string> parts;
  parts.reserve(stages_with.size());
  for (const auto& [replicas, stages] : stages_with) {
    parts.push_back(grid.replicas == 1 ? Counted("stage", stages)
                                       : absl::StrCat(Counted("stage", stages), ": ", Counted("replica", replicas)));
  }
  return absl::StrJoin(parts, "; ");
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

std::string PlacementMap(const GridShape& grid, const std::vector<std::string>& hosts, int most_hosts) {
  HADAL_CHECK_EQ(static_cast<int>(hosts.size()), grid.ranks());
  std::vector<std::string> names;  // in order of their first rank
  std::map<std::string, std::set<int>> ranks_of;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    if (ranks_of[hosts[rank]].empty()) names.push_back(hosts[rank]);
    ranks_of[hosts[rank]].insert(rank);
  }
  const auto count = [](size_t number, const std::string& noun) {
    return absl::StrCat(number, " ", noun, number == 1 ? "" : "s");
  };
  std::string text = absl::StrCat("placement  ", count(grid.stages, "stage"), " x ", count(grid.replicas, "replica"),
                                  " on ", count(names.size(), "host"));
  if (grid.stages > 1 && grid.replicas > 1) {
    const bool replicas = grid.placement == Placement::kReplicasTogether;
    absl::StrAppend(&text, replicas ? ", replicas of a stage together" : ", stages of a replica together");
  }
  text += "\n";
  size_t widest = 0;
  for (const std::string& name : names) widest = std::max(widest, name.size());
  for (size_t i = 0; i < names.size() && static_cast<int>(i) < most_hosts; ++i) {
    const std::set<int>& ranks = ranks_of[names[i]];
    absl::StrAppend(&text, "  ", names[i], std::string(widest - names[i].size(), ' '), "  ", Counted("rank", ranks),
                    "  ", Parts(grid, ranks), "\n");
  }
  const int more = static_cast<int>(names.size()) - most_hosts;
  if (more > 0) absl::StrAppend(&text, "  and ", count(more, "host"), " more\n");
  return text;
}

}  // namespace hadal
