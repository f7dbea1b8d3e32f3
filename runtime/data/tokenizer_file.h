// The tokens of a Hugging Face tokenizer.json. hadal never encodes or decodes text with it (the Python package
// `tokenizers` does, tools/corpus/text_codec.h); its ids and their names are all that models and corpora need.
// Thread safety: pure.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

// Returns the string of each id, "" for a number that no token has: the model's vocabulary (BPE, Unigram, WordPiece or
// WordLevel), then added tokens. `name`: the file's, for errors.
// Errors: InvalidArgument if `contents` is no tokenizer.json, or if the id of an added token is not the one that the
// package would use: that of the same string in the vocabulary, or the next free number for a new string.
absl::StatusOr<std::vector<std::string>> TokensOfTokenizer(const std::string& contents, const std::string& name);

}  // namespace hadal
