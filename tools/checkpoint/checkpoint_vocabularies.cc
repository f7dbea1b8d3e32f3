#include "tools/checkpoint/checkpoint_vocabularies.h"

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/vocabulary_growth.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"

namespace hadal {
namespace {

// The tokens that `now` has and `before` lacks, for the user.
std::string NewTokens(const Vocabulary& before, const Vocabulary& now, const std::vector<int32_t>& ids) {
  constexpr int kMostNames = 8;
  const std::set<int32_t> old(ids.begin(), ids.end());
  const int32_t count = now.size() - before.size();
  std::string names;
  int named = 0;
  for (int32_t id = 0; id < now.size() && named < kMostNames; ++id) {
    if (!old.contains(id)) absl::StrAppend(&names, named++ > 0 ? ", " : "", Printable(now.Token(id)));
  }
  if (count == 0) return "the same tokens at other ids";
  return absl::StrCat(count, count == 1 ? " new token: " : " new tokens: ", names, count > named ? ", …" : "");
}

// `side`: "source" or "target".
absl::Status CheckSide(const FoundCheckpoint& checkpoint, const std::string& side, const CorpusManifest& corpus,
                       const VocabularyReference& reference, const Vocabulary& vocabulary, std::string* growth) {
  const AttachedFile* const file =
      VocabularyFile(checkpoint.manifest, side == "source" ? kSourceVocabulary : kTargetVocabulary);
  if (file == nullptr || file->crc32c == reference.crc32c) return absl::OkStatus();
  const std::string& directory = checkpoint.checkpoint.directory;
  const std::string path = JoinPath(directory, file->name);
  HADAL_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(directory, checkpoint.manifest));
  HADAL_ASSIGN_OR_RETURN(std::string contents, reader.ReadAttachment(file->name));
  HADAL_ASSIGN_OR_RETURN(const Vocabulary carried, Vocabulary::Parse(std::move(contents), path));
  const absl::StatusOr<std::vector<int32_t>> ids = IdsOfTokens(carried, vocabulary);
  if (ids.ok() && ids->empty()) return absl::OkStatus();
  const bool shared = corpus.shares_vocabulary() && absl::StartsWith(file->name, absl::StrCat(kSharedVocabulary, "."));
  if (ids.ok() && growth != nullptr) {
    if (!shared || side == "target") {
      absl::StrAppend(growth, growth->empty() ? "rows go by token" : "", "; the ", shared ? "" : side + " ",
                      "vocabulary has ", NewTokens(carried, vocabulary, *ids));
    }
    return absl::OkStatus();
  }
  return InvalidArgumentError(
      directory, " was trained with a different ", shared ? "" : side + " ", "vocabulary than the corpus has (",
      file->name, " there, ", reference.file, " here): its ids would mean other pieces. ",
      ids.ok() ? "It has all tokens of the checkpoint's: --init-from without --deepen keeps their rows. "
               : absl::StrCat("It", absl::StripPrefix(ids.status().message(), "the corpus's vocabulary"), ". "),
      "Prepare the corpus with that vocabulary (`hadal prepare ",
      absl::EndsWith(path, ".json") ? "--monolingual --tokenizer`, --end-token: "
                                    : "--vocab`, --source-vocab, --target-vocab: ",
      path, "), or use the corpus that it was trained on, or new weights.");
}

}  // namespace

absl::Status CheckVocabularies(const FoundCheckpoint& checkpoint, const CorpusManifest& corpus,
                               const CorpusVocabularies& vocabularies, std::string* growth) {
  if (corpus.source_vocabulary.size > 0) {
    HADAL_RETURN_IF_ERROR(
        CheckSide(checkpoint, "source", corpus, corpus.source_vocabulary, vocabularies.source, growth));
  }
  return CheckSide(checkpoint, "target", corpus, corpus.target_vocabulary, vocabularies.target, growth);
}

}  // namespace hadal
