// Lists of parallel texts for `hadal prepare`: a file (configs/corpora.proto), or the folders of OPUS-100.
// Thread safety: pure, except for reading files.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/language_tags.h"
#include "tools/command_line.h"
#include "tools/corpus/parallel_text.h"

namespace hadal {

struct TextSplits {
  std::vector<TextPair> train;
  std::vector<TextPair> valid;
  std::vector<TextPair> test;
};

// Errors: InvalidArgument if two texts have the same CorpusName.
absl::Status CheckCorpusNames(const std::vector<TextPair>& pairs);

// Reads a list, in its order; a text with both directions gives two successive entries.
// Errors: InvalidArgument, naming the file, if it is not a list, a direction is invalid, a text has no files, or a
// split names more than 2 files; those of CheckCorpusNames.
absl::StatusOr<TextSplits> ReadCorporaList(const std::string& path);

// Finds the texts of a folder laid out as OPUS-100 (Zhang et al. 2020): folders xx-yy, anywhere below `folder`, each
// with opus.xx-yy-train.xx and .yy, or -dev, or -test, plain or .gz. Returns both directions of each pair of files, in
// the order of the folders' names. Errors: InvalidArgument if there are no such folders, two have one name, or a
// folder's name does not fit its files; NotFound if one file of a pair is missing.
absl::StatusOr<TextSplits> FindOpusTexts(const std::string& folder);

// Adds the option --tags to a subcommand. `otherwise`: its default, as text for the help. Tags: LanguageTags or
// std::optional<LanguageTags>.
template <typename Tags>
void AddTagsOption(Command command, Tags& tags, const std::string& otherwise) {
  std::vector<std::pair<std::string, LanguageTags>> choices;
  for (const auto& [word, value] : kLanguageTags) choices.emplace_back(word, value);
  command.AddChoice("--tags", tags,
                    "Language tags: deepnet: the target's before the source; m2m100, nllb: the source's before the "
                    "source, the target's before the target (default: " +
                        otherwise + ")",
                    choices);
}

}  // namespace hadal
