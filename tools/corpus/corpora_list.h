// Lists of parallel texts for `hadal prepare`: a file (configs/corpora.proto), or the folders of OPUS-100.
// Thread safety: pure, except for reading files.
#pragma once

#include <string>
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

// Reads a list, in its order; a text with both directions gives two neighbours.
// Errors: InvalidArgument with the file: it is not a list, a direction is malformed, a text has no files, a split has
// more than 2, or two texts have the same direction and domain.
absl::StatusOr<TextSplits> ReadCorporaList(const std::string& path);

// Finds the texts of a folder laid out as OPUS-100 (Zhang et al. 2020): folders xx-yy, anywhere below `folder`, each
// with opus.xx-yy-train.xx and .yy, or -dev, or -test, in order of their names. Both directions of each.
// Errors: InvalidArgument if there are none; NotFound for a side that is missing.
absl::StatusOr<TextSplits> FindOpusTexts(const std::string& folder);

// Adds the option --tags to a subcommand.
void AddTagsOption(Command command, LanguageTags& tags);

}  // namespace hadal
