#include "tools/config/model_vocabularies.h"

#include "absl/strings/str_cat.h"

namespace hadal {

absl::Status FollowCorpus(const CorpusManifest& corpus, TrainOptions& options) {
  ModelOptions& model = options.model;
  if (model.has_encoder() && model.sharing == EmbeddingSharing::kAll && !corpus.shares_vocabulary()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model.sharing = \"all\" uses one embedding matrix and needs one vocabulary, but the corpus data.train = \"",
        options.train_data, "\" has two, ", corpus.source_vocabulary.file, " and ", corpus.target_vocabulary.file,
        ". Prepare it without --separate, or set model.sharing to \"decoder\" or \"none\"."));
  }
  if (model.frame_width > 0 && model.frame_width != corpus.frame_width) {
    return absl::InvalidArgumentError(
        absl::StrCat("model.frame_width = ", model.frame_width, ", but the corpus data.train = \"", options.train_data,
                     "\" ", corpus.frame_width > 0 ? absl::StrCat("has frames of ", corpus.frame_width) : "is text",
                     ". Leave model.frame_width unset to use the corpus's."));
  }
  model.frame_width = corpus.frame_width;
  model.source_vocabulary = corpus.source_vocabulary.size;
  model.target_vocabulary = corpus.target_vocabulary.size;
  if (options.pipeline.decoder) options.pipeline.decoder->prefixes = corpus.target_tags;
  return absl::OkStatus();
}

}  // namespace hadal
