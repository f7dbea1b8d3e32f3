#include "tools/config/model_vocabularies.h"

#include "absl/strings/str_cat.h"

namespace hadal {

absl::Status SetVocabularies(const CorpusManifest& corpus, const std::string& prefix, ModelOptions& model) {
  if (model.has_encoder() && model.sharing == EmbeddingSharing::kAll && !corpus.shares_vocabulary()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.sharing = \"all\" uses one embedding matrix and needs one vocabulary, but the corpus data.train = \"",
        prefix, "\" has two, ", corpus.source_vocabulary.file, " and ", corpus.target_vocabulary.file,
        ". Prepare it without --separate, or set model.sharing to \"decoder\" or \"none\"."));
  }
  model.source_vocabulary = corpus.source_vocabulary.size;
  model.target_vocabulary = corpus.target_vocabulary.size;
  return absl::OkStatus();
}

}  // namespace hadal
