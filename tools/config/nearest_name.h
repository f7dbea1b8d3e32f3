// Finds the name that a misspelt name most likely means, for "did you mean …?".
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace hadal {

// Returns the least number of insertions, deletions, substitutions and swaps of neighbouring bytes that turn `a` into
// `b` (optimal string alignment distance: no substring is edited twice). Upper and lower case differ.
int EditDistance(absl::string_view a, absl::string_view b);

// Returns the candidate with the least EditDistance to `name` (the first of equals). The distance may be at most a
// third of the name's length, but two for short names, and must be less than the candidate's length. If there is none
// and `name` has three letters or more, returns the first candidate that begins with it ("warmup_updates" for
// "warmup"); else "". Letter case is ignored.
std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates);

}  // namespace hadal
