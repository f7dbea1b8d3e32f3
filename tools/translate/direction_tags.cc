#include "tools/translate/direction_tags.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  return absl::InvalidArgumentError(
      absl::StrCat("the model's vocabulary has no language tag ", tag, "; ",
                   tags.empty() ? "it has none: omit --direction and --tags" : "it has " + absl::StrJoin(tags, ", ")));
}

}  // namespace

absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                const Direction& direction) {
  DirectionTags found;
  HADAL_ASSIGN_OR_RETURN(found.source, TagIds(checkpoint.source_vocabulary(), EncoderTag(tags, direction)));
  HADAL_ASSIGN_OR_RETURN(found.target, TagIds(checkpoint.target_vocabulary(), DecoderTag(tags, direction)));
  return found;
}

absl::StatusOr<DirectionTags> FindDirectionTags(const ModelCheckpoint& checkpoint, LanguageTags tags,
                                                std::string_view direction) {
  if (direction.empty() && tags == LanguageTags::kNone) return DirectionTags();
  if (direction.empty() || tags == LanguageTags::kNone) {
    return absl::InvalidArgumentError(
        "--direction and --tags are given together: which languages, and where the model's training text had tags");
  }
  HADAL_ASSIGN_OR_RETURN(const Direction languages, ParseDirection(direction));
  return FindDirectionTags(checkpoint, tags, languages);
}

void AddDirectionOptions(Command command, const char* help, std::string& direction, LanguageTags& tags) {
  command.AddOption("--direction", direction, help).ValueName("SOURCE-TARGET");
  AddTagsOption(command, tags);
}

}  // namespace hadal
