// Parses JSON from untrusted files: nlohmann-json with limits, and with absl::Status instead of exceptions.
//
// Besides malformed JSON it refuses: text longer than max_bytes; nesting deeper than max_depth (detected while parsing,
// before anything is built); an object with a duplicate key (parsers disagree on which one counts); invalid UTF-8.
// Thread safety: pure functions. Memory: at most about 16 bytes per byte of text. Time: linear.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace hadal {

struct StrictJsonLimits {
  int64_t max_bytes = 0;
  int max_depth = 8;
};

// Errors: DataLoss; the message starts with `what` (for example a path). REQUIRES: limits.max_bytes is set.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text, const StrictJsonLimits& limits,
                                               const std::string& what);

}  // namespace hadal
