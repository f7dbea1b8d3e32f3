// Serialises translations ([sentences] lists of hypotheses) for the broadcast from the searching rank to the others.
// Both sides run the same binary.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/decode/beam_search.h"

namespace hadal {

std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations);
// Errors: Internal if `bytes` are truncated.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes);

}  // namespace hadal
