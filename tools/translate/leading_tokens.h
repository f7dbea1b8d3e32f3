// The tokens that stand before a source, and those that an output must begin with: the language tags of a direction
// (runtime/data/language_tags.h), and a line of text that --prefix gives. Thread safety: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/vocabulary.h"
#include "tools/command_line.h"

namespace hadal {

struct DirectionTags {
  std::vector<int32_t> source, target;  // one id or none
};

// Errors: InvalidArgument naming a tag that the model's vocabularies lack, and those they have.
absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                const Direction& direction);
// The same of "en-de"; no tags if there is neither direction nor kind of tags. Errors: also InvalidArgument for one
// without the other.
absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                std::string_view direction);

// Adds --direction and --tags to a subcommand. `help`: what --direction says.
void AddDirectionOptions(Command command, const char* help, std::string& direction, LanguageTags& tags);

// Returns the tokens that an output must begin with. The text is encoded as text of that vocabulary is: pieces of a
// SentencePiece model, or the tokens of a dictionary. Words `__…__` at its start that are tokens, such as the tag
// `__de__`, are these tokens: SentencePiece alone would put a "▁" before them.
// Errors: InvalidArgument naming the first word with a token that the vocabulary lacks.
absl::StatusOr<std::vector<int32_t>> ForcedTokens(const Vocabulary& vocabulary, std::string_view text);

}  // namespace hadal
