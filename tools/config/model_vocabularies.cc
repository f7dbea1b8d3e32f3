#include "tools/config/model_vocabularies.h"

#include "absl/strings/str_cat.h"

namespace hadal {

absl::Status FollowCorpus(const CorpusManifest& corpus, TrainOptions& options) {
  ModelOptions& model = options.model;
  if (corpus.frame_width > 0) {
    return absl::InvalidArgumentError(absl::StrCat("the corpus data.train = \"", options.train_data,
                                                   "\" is speech, frames of ", corpus.frame_width,
                                                   " features, and the model reads tokens; give a corpus of text"));
  }
  if (model.has_encoder() && model.sharing == EmbeddingSharing::kAll && !corpus.shares_vocabulary()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.sharing = \"all\" uses one embedding matrix and needs one vocabulary, but the corpus data.train = \"",
        options.train_data, "\" has two, ", corpus.source_vocabulary.file, " and ", corpus.target_vocabulary.file,
        ". Prepare it without --separate, or set model.sharing to \"decoder\" or \"none\"."));
  }
  model.source_vocabulary = corpus.source_vocabulary.size;
  model.target_vocabulary = corpus.target_vocabulary.size;
  if (options.pipeline.decoder) options.pipeline.decoder->prefixes = corpus.target_tags;
  return absl::OkStatus();
}

}  // namespace hadal
