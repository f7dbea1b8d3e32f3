// Finds the name that a misspelt name most likely means, for "did you mean …?".
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hadal {

// Least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b` (optimal string
// alignment distance: no substring is edited twice). Bytes, case included.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns, ignoring letter case, the nearest candidate (the first of equals) within a third of the name's length, or
// within two edits for short names; else the first that begins with `name` ("warmup" for "warmup_updates"), if that has
// three letters or more; else "".
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace hadal
