#include "runtime/data/corpus_vocabulary.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

absl::StatusOr<Vocabulary> LoadOne(const Corpus& corpus, const VocabularyReference& reference) {
  const std::string path = corpus.VocabularyPath(reference);
  HADAL_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Load(path));
  if (vocabulary.crc32c() != reference.crc32c || vocabulary.size() != reference.size) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is not the vocabulary that the corpus was made with: it has ", vocabulary.size(),
                     " ids and checksum ", absl::Hex(vocabulary.crc32c(), absl::kZeroPad8), ", the corpus expects ",
                     reference.size, " and ", absl::Hex(reference.crc32c, absl::kZeroPad8), ""));
  }
  return vocabulary;
}

}  // namespace

absl::StatusOr<CorpusVocabularies> LoadVocabularies(const Corpus& corpus) {
  const CorpusManifest& manifest = corpus.manifest();
  absl::StatusOr<Vocabulary> target = LoadOne(corpus, manifest.target_vocabulary);
  if (!target.ok()) return DamagedCorpus(target.status(), "its manifest");
  if (manifest.shares_vocabulary()) return CorpusVocabularies{*target, *target};
  absl::StatusOr<Vocabulary> source = LoadOne(corpus, manifest.source_vocabulary);
  if (!source.ok()) return DamagedCorpus(source.status(), "its manifest");
  return CorpusVocabularies{*std::move(source), *std::move(target)};
}

}  // namespace hadal
