// The language tags of a direction (runtime/data/language_tags.h) as a model's token ids: what `hadal translate`,
// `score` and `evaluate` put before the tokens of a source and of a target.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "runtime/data/language_tags.h"
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

}  // namespace hadal
