// Translations as bytes, for the way from the searching rank to the others. Same binary on both sides.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/decode/beam_search.h"

namespace hadal {

std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations);
// Errors: Internal when `bytes` were cut short.
absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes);

}  // namespace hadal
