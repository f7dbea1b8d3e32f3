// Reads the tokens that an output must begin with, from a line of text.
//
// The text is encoded as text of that vocabulary is: pieces of a SentencePiece model, or the tokens of a dictionary.
// Words `__…__` at its start that are tokens, such as the tag `__de__`, are these tokens: SentencePiece alone would put
// a "▁" before them. Thread safety: pure.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

// Errors: InvalidArgument naming the first word with a token that the vocabulary lacks.
absl::StatusOr<std::vector<int32_t>> ForcedTokens(const Vocabulary& vocabulary, std::string_view text);

}  // namespace hadal
