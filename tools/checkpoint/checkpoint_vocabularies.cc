#include "tools/checkpoint/checkpoint_vocabularies.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/data/vocabulary.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// The file of one side, `stem` and an extension, or of both sides; null if the checkpoint has none.
const AttachedFile* FileOf(const CheckpointManifest& manifest, const std::string& stem) {
  for (const std::string& name : {stem, std::string(kSharedVocabulary)}) {
    const auto found =
        std::find_if(manifest.attachments.begin(), manifest.attachments.end(),
                     [&](const AttachedFile& file) { return absl::StartsWith(file.name, absl::StrCat(name, ".")); });
    if (found != manifest.attachments.end()) return &*found;
  }
  return nullptr;
}

// Files may differ while their ids agree: a dictionary with other counts.
bool SamePieces(const Vocabulary& a, const Vocabulary& b) {
  if (a.size() != b.size()) return false;
  for (int32_t id = 0; id < a.size(); ++id) {
    if (a.Token(id) != b.Token(id)) return false;
  }
  return true;
}

// `side`: "source" or "target".
absl::Status CheckSide(const FoundCheckpoint& checkpoint, const std::string& side, const CorpusManifest& corpus,
                       const VocabularyReference& reference, const Vocabulary& vocabulary) {
  const AttachedFile* const file =
      FileOf(checkpoint.manifest, side == "source" ? kSourceVocabulary : kTargetVocabulary);
  if (file == nullptr || file->crc32c == reference.crc32c) return absl::OkStatus();
  const std::string& directory = checkpoint.checkpoint.directory;
  const std::string path = JoinPath(directory, file->name);
  HADAL_ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(directory, checkpoint.manifest));
  HADAL_ASSIGN_OR_RETURN(std::string contents, reader.ReadAttachment(file->name));
  HADAL_ASSIGN_OR_RETURN(const Vocabulary carried, Vocabulary::Parse(std::move(contents), path));
  if (SamePieces(carried, vocabulary)) return absl::OkStatus();
  const bool shared = corpus.shares_vocabulary() && absl::StartsWith(file->name, absl::StrCat(kSharedVocabulary, "."));
  return absl::InvalidArgumentError(
      absl::StrCat(directory, " was trained with a different ", shared ? "" : side + " ",
                   "vocabulary than the corpus has (", file->name, " there, ", reference.file,
                   " here): its ids would mean other pieces. Prepare the "
                   "corpus with that vocabulary (`hadal prepare --vocab`, --source-vocab, --target-vocab: ",
                   path, "), or use the corpus that it was trained on, or new weights."));
}

}  // namespace

absl::Status CheckVocabularies(const FoundCheckpoint& checkpoint, const CorpusManifest& corpus,
                               const CorpusVocabularies& vocabularies) {
  if (corpus.source_vocabulary.size > 0) {
    HADAL_RETURN_IF_ERROR(CheckSide(checkpoint, "source", corpus, corpus.source_vocabulary, vocabularies.source));
  }
  return CheckSide(checkpoint, "target", corpus, corpus.target_vocabulary, vocabularies.target);
}

}  // namespace hadal
