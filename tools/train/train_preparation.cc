#include "tools/train/train_preparation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/data/vocabulary.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/config/config_layers.h"
#include "tools/config/config_origin.h"
#include "tools/config/model_vocabularies.h"
#include "tools/config/resolved_config.h"

namespace hadal {
namespace {

std::vector<Attachment> Attach(const CorpusVocabularies& vocabularies, bool shared) {
  const auto attach = [](const Vocabulary& vocabulary, const std::string& stem) {
    return Attachment{stem + std::string(vocabulary.extension()), vocabulary.contents()};
  };
  if (shared) return {attach(vocabularies.target, kSharedVocabulary)};
  return {attach(vocabularies.source, kSourceVocabulary), attach(vocabularies.target, kTargetVocabulary)};
}

// Opens the corpus whose prefix the config field `field` gives.
absl::StatusOr<Corpus> OpenCorpus(const char* field, const std::string& prefix, const CorpusShare& share) {
  absl::StatusOr<Corpus> corpus = Corpus::Open(prefix, share);
  if (!absl::IsNotFound(corpus.status())) return corpus;
  return absl::NotFoundError(absl::StrCat(corpus.status().message(), ". ", field,
                                          " is a prefix of files, the one that `hadal prepare` prints at its end"));
}

// Opens both corpora, checks that they use the same vocabularies, and sets what of the options follows from them.
absl::Status OpenCorpora(const CorpusShare& share, PreparedRun& run) {
  TrainOptions& options = run.options.train;
  HADAL_ASSIGN_OR_RETURN(run.train, OpenCorpus("data.train", options.train_data, share));
  const CorpusManifest& manifest = run.train->manifest();
  if (!options.validation_data.empty()) {
    HADAL_ASSIGN_OR_RETURN(run.validation, OpenCorpus("data.validation", options.validation_data, share));
    const CorpusManifest& held_out = run.validation->manifest();
    if (held_out.source_vocabulary.crc32c != manifest.source_vocabulary.crc32c ||
        held_out.target_vocabulary.crc32c != manifest.target_vocabulary.crc32c ||
        held_out.target_tags != manifest.target_tags || held_out.frame_width != manifest.frame_width) {
      return absl::InvalidArgumentError(
          absl::StrCat("data.train = \"", options.train_data, "\" and data.validation = \"", options.validation_data,
                       "\" were prepared with different vocabularies, tags or features. Prepare them together."));
    }
  }
  return FollowCorpus(manifest, options);
}

// Fills `run` from run.config.
absl::Status FollowConfig(const TrainArguments& arguments, const CorpusShare& share, PreparedRun& run) {
  if (arguments.run_directory.empty()) {
    return absl::InvalidArgumentError("--run-dir is empty (a variable that is not set?); name a directory");
  }
  HADAL_ASSIGN_OR_RETURN(run.options, MakeRunOptions(run.config));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> unheard, LayersWithoutEffect(arguments.config.files));
  run.options.warnings.insert(run.options.warnings.end(), unheard.begin(), unheard.end());
  TrainOptions& options = run.options.train;
  HADAL_RETURN_IF_ERROR(CheckTrainable(options));
  HADAL_ASSIGN_OR_RETURN(run.config_text, ResolvedConfigText(run.config));
  options.run_directory = arguments.run_directory;
  HADAL_ASSIGN_OR_RETURN(run.time_limit, TimeLimit::Make(arguments.stop_after));
  HADAL_RETURN_IF_ERROR(OpenCorpora(share, run));
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(options.model));
  HADAL_ASSIGN_OR_RETURN(run.vocabularies, LoadVocabularies(*run.train));
  run.attachments = Attach(*run.vocabularies, run.train->manifest().shares_vocabulary());
  if (!arguments.costs.empty()) {  // they must be this model's; the report will want them
    HADAL_ASSIGN_OR_RETURN(const LoadedCosts costs, LoadCosts(arguments.costs));
    HADAL_RETURN_IF_ERROR(costs.For(options.model).status());
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share) {
  PreparedRun run;
  HADAL_ASSIGN_OR_RETURN(run.config, std::move(config));
  HADAL_RETURN_IF_ERROR(Explained(FollowConfig(arguments, share, run), arguments));
  return run;
}

absl::Status Explained(const absl::Status& error, const TrainArguments& arguments) {
  return WithOrigins(error, arguments.config.files, arguments.config.overrides);
}

}  // namespace hadal
