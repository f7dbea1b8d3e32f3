#include "tools/translate/leading_tokens.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/choice_words.h"
#include "runtime/data/input_kind.h"
#include "runtime/status_macros.h"
#include "tools/corpus/corpora_list.h"

namespace hadal {
namespace {

// The id of a tag, or none of "".
absl::StatusOr<std::vector<int32_t>> TagIds(const Vocabulary& vocabulary, const std::string& tag) {
  if (tag.empty()) return std::vector<int32_t>();
  if (const int32_t id = vocabulary.Id(tag); id != kUnknownToken) return std::vector<int32_t>{id};
  constexpr size_t kShown = 20;
  std::vector<std::string> tags;
  for (int32_t id = 0; id < vocabulary.size() && tags.size() < kShown; ++id) {
    if (IsLanguageTag(vocabulary.Token(id))) tags.push_back(vocabulary.Token(id));
  }
  return InvalidArgumentError(
      "the model's vocabulary has no language tag ", tag, "; ",
      tags.empty() ? "it has none: omit --direction and --tags" : "it has " + absl::StrJoin(tags, ", "));
}

bool HasUnknown(const std::vector<int32_t>& tokens) {
  return std::find(tokens.begin(), tokens.end(), kUnknownToken) != tokens.end();
}

// The tag that the text begins with; empty: none.
std::string_view FirstTag(const Vocabulary& vocabulary, std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  return IsLanguageTag(word) && vocabulary.Id(word) != kUnknownToken ? word : std::string_view();
}

}  // namespace

absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                const Direction& direction) {
  DirectionTags found;
  HADAL_ASSIGN_OR_RETURN(found.source, TagIds(checkpoint.source_vocabulary(), EncoderTag(tags, direction)));
  HADAL_ASSIGN_OR_RETURN(found.target, TagIds(checkpoint.target_vocabulary(), DecoderTag(tags, direction)));
  return found;
}

absl::StatusOr<LanguageTags> ChosenTags(const ModelCheckpoint& checkpoint, std::optional<LanguageTags> given,
                                        bool has_direction) {
  const InputKind& inputs = checkpoint.inputs();
  const LanguageTags* const recorded = FindWord(kLanguageTags, inputs.tags);
  if (given.has_value()) {
    // none: the user's choice, for example because the text and --prefix have the tags
    if (*given != LanguageTags::kNone) {
      HADAL_RETURN_IF_ERROR(CheckTags(inputs, ToWord(kLanguageTags, *given), "--tags"));
    }
    return *given;
  }
  if (recorded == nullptr || *recorded == LanguageTags::kNone || has_direction) {
    return recorded == nullptr ? LanguageTags::kNone : *recorded;
  }
  return InvalidArgumentError("the model was trained with language tags of the preset ", inputs.tags,
                              "; give --direction SOURCE-TARGET, or --tags none for text without them");
}

absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, std::optional<LanguageTags> tags,
                                                std::string_view direction) {
  HADAL_ASSIGN_OR_RETURN(const LanguageTags chosen, ChosenTags(checkpoint, tags, !direction.empty()));
  if (direction.empty() && chosen == LanguageTags::kNone) return DirectionTags();
  if (direction.empty() || chosen == LanguageTags::kNone) {
    return InvalidArgumentError(checkpoint.inputs().tags == "none"
                                    ? "the model was trained without language tags; omit --direction"
                                    : "--direction and --tags are given together: which languages, and where the "
                                      "model's training text had tags");
  }
  HADAL_ASSIGN_OR_RETURN(const Direction languages, ParseDirection(direction));
  return FindDirectionTags(checkpoint, chosen, languages);
}

void AddDirectionOptions(Command command, const char* help, std::string& direction, std::optional<LanguageTags>& tags) {
  command.AddOption("--direction SOURCE-TARGET", direction, help);
  AddTagsOption(command, tags, "the model's");
}

absl::StatusOr<std::vector<int32_t>> ForcedTokens(const Vocabulary& vocabulary, std::string_view text) {
  std::vector<int32_t> tokens;
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  for (std::string_view tag; !(tag = FirstTag(vocabulary, text)).empty();) {
    tokens.push_back(vocabulary.Id(tag));
    text.remove_prefix(std::min(text.size(), tag.size() + 1));
  }
  const std::vector<int32_t> encoded = vocabulary.Encode(text);
  if (HasUnknown(encoded)) {
    const std::vector<std::string> words = absl::StrSplit(std::string(text), ' ');
    const auto word = std::find_if(words.begin(), words.end(),
                                   [&](const std::string& one) { return HasUnknown(vocabulary.Encode(one)); });
    return InvalidArgumentError("the vocabulary lacks a token of \"", word == words.end() ? std::string(text) : *word,
                                "\", so no output can begin with it");
  }
  tokens.insert(tokens.end(), encoded.begin(), encoded.end());
  return tokens;
}

}  // namespace hadal
