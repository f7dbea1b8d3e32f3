// "Did you mean …?": the name a person most likely meant.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hadal {

// Least number of insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`
// (optimal string alignment distance: no substring is edited twice). Bytes, case included.
int EditDistance(absl::string_view a, absl::string_view b);

// The candidate that `name` was called before, if it was renamed; else the nearest (the first of equals): within a
// third of the name's length, and within two edits for short names; else the first that begins with it ("warmup" for
// "warmup_updates"); else "". Letter case counts for nothing.
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace hadal
