#include "tools/compare/comparison_corpora.h"

#include "runtime/data/corpus.h"
#include "runtime/status_macros.h"
#include "tools/compare/comparison_result.h"
#include "tools/config/model_vocabularies.h"
#include "tools/config/run_options.h"

namespace hadal {

absl::Status ComparisonCorpora::Check(const config::RunConfig& config) {
  HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
  HADAL_RETURN_IF_ERROR(CheckTrainable(options.train));
  const std::string& prefix = options.train.train_data;
  if (manifests_.count(prefix) == 0) {
    HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(prefix));
    manifests_[prefix] = corpus.manifest();
  }
  HADAL_RETURN_IF_ERROR(FollowCorpus(manifests_[prefix], options.train));
  return ValidateModelOptions(options.train.model);
}

absl::StatusOr<std::optional<double>> ComparisonCorpora::Unigram(const config::RunConfig& config) {
  const auto key =
      std::make_tuple(config.data().train(), config.data().validation(), config.validation().max_sentences(),
                      config.validation().every_steps() > 0, config.batch().source_tokens(),
                      config.batch().target_tokens(), config.model().max_positions());
  if (levels_.count(key) == 0) {
    HADAL_ASSIGN_OR_RETURN(levels_[key], UnigramLevel(config));
  }
  return levels_[key];
}

}  // namespace hadal
