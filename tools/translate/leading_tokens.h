// The tokens that stand before a source, and those that an output must begin with: the language tags of a direction
// (runtime/data/language_tags.h), and the text of --prefix. Thread safety: the functions are pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "runtime/data/vocabulary.h"
#include "tools/command_line.h"
#include "tools/output/human_units.h"

namespace hadal {

// Counts the tokens of a text that a model's dictionary lacks. A dictionary (fairseq's dict.txt) has pieces of words; a
// model with a dictionary can read only text that is already cut into such pieces.
class UnknownTokens {
 public:
  // Counts `tokens`, a text's token ids in `vocabulary`. Does nothing if `vocabulary` is not a dictionary.
  void Count(const Vocabulary& vocabulary, std::span<const int32_t> tokens) {
    if (vocabulary.kind() != VocabularyKind::kDictionary) return;
    tokens_ += std::ssize(tokens);
    unknown_ += std::ranges::count(tokens, kUnknownToken);
  }
  // Returns a warning if more than half of the tokens are unknown, else "". `of`: what was counted, "lines 3 to 4".
  std::string Warning(const std::string& of) const {
    if (2 * unknown_ <= tokens_) return "";
    return absl::StrCat("warning: ", HumanCount(unknown_), " of ", HumanCount(tokens_), " tokens of ", of,
                        " are not in the model's dictionary and are read as <unk>. Encode the text first with the "
                        "model's own SentencePiece model or BPE codes");
  }

 private:
  int64_t tokens_ = 0, unknown_ = 0;
};

// Returns the kind of tags with which a model reads text: `given` or, if that is not set, the kind with which it was
// trained; kNone for an older checkpoint, which does not record it.
// Errors: InvalidArgument if `given` is another kind than that of the model's training (kNone is always allowed), or if
// the model was trained with tags, `given` is not set and there is no direction (`has_direction`).
absl::StatusOr<LanguageTags> ChosenTags(const ModelCheckpoint& checkpoint, std::optional<LanguageTags> given,
                                        bool has_direction);

// Ids of the tags that stand before the source and before the target.
struct DirectionTags {
  std::vector<int32_t> source, target;  // one id or none
};

// Returns the ids of the direction's tags of kind `tags`. Errors: InvalidArgument naming a tag that the model's
// vocabularies lack, and those they have.
absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                const Direction& direction);
// The same for the direction "en-de" and the kind ChosenTags(checkpoint, tags, …). If `direction` is "" and the kind is
// kNone, there are no tags. Errors: also InvalidArgument if only one of direction and kind is given.
absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, std::optional<LanguageTags> tags,
                                                std::string_view direction);

// Adds --direction and --tags to a subcommand. `help`: the help text of --direction.
void AddDirectionOptions(Command command, const char* help, std::string& direction, std::optional<LanguageTags>& tags);

// Returns the tokens that an output must begin with: `text` encoded with `vocabulary`, as pieces of a SentencePiece
// model or tokens of a dictionary. Words `__…__` at the start of the text that are tokens, such as the tag `__de__`,
// become these tokens; SentencePiece alone would put a "▁" before them.
// Errors: InvalidArgument naming the first word with a token that the vocabulary lacks.
absl::StatusOr<std::vector<int32_t>> ForcedTokens(const Vocabulary& vocabulary, std::string_view text);

}  // namespace hadal
