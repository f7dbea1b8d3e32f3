// `hadal config cells` answers what the Python of `hadal compare` and `hadal sweep` (pyhadal/grid.py) needs of configs.
//
// A question is a JSON object in one line of standard input, its answer an object in one line:
//   {"grid": FILE}       the grid (configs/compare.proto) by its fields
//   {"files": [FILE…], "set": ["a.b=c"…]}   of the config that `hadal train` makes of these: cost, the multiply-adds of
//                        its run, by which cells are ordered; steps, its stop.steps; and with
//     "effect": true     also the errors of `hadal config show`
//     "corpus": true     also those of model and corpus of `hadal train`; opens each corpus once
//     "unigram": true    unigram_nll: the nll in nats per target token of the validated sentences if each token is
//                        predicted by its frequency in the training text; absent if no sentence is validated
//     "run": DIRECTORY   if a run is there: changes, the fields that need --accept-changes, as text; layout, those of
//                        pipeline that differ (but the timeout), as text; limits, whether a field of stop differs
// The first error is the last answer: {"error": MESSAGE, "exit_code": N}.
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "configs/compare.pb.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_manifest.h"
#include "runtime/data/sampling_order.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/resolved_config.h"
#include "tools/config/run_options.h"
#include "tools/corpus/inspect.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Multiply-adds of the matrix products with the layers' weights in a run, forward and backward: 3 × weights of the
// layers × target tokens per step × steps (1 step if the run has no limit in steps).
double CellCost(const config::RunConfig& config) {
  const config::Model& model = config.model();
  const double d = model.d_model(), f = model.d_ff();
  const double heads = model.heads(), kv = model.block().kv_heads() > 0 ? model.block().kv_heads() : heads;
  const double head_width = model.block().head_width() > 0 ? model.block().head_width() : d / heads;
  const double gate = model.block().attention_gate() ? d * head_width * heads : 0;  // self-attention alone
  const double attention = 2 * d * head_width * (heads + kv), feed_forward = (model.block().gated() ? 3 : 2) * d * f;
  const bool cross = model.encoder_layers() > 0;
  const double weights = model.encoder_layers() * (attention + gate + feed_forward) +
                         model.decoder_layers() * ((cross ? 2 : 1) * attention + gate + feed_forward);
  const double tokens = static_cast<double>(config.batch().micro_batches()) * config.batch().target_tokens();
  return 3 * weights * tokens * static_cast<double>(std::max<int64_t>(1, config.stop().steps()));
}

absl::StatusOr<OrderedJson> ReadGrid(const std::string& file) {
  config::Comparison grid;
  HADAL_RETURN_IF_ERROR(LoadMessage(file, grid));
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::MessageToJsonString(grid, &text, options);
  if (!status.ok()) return InvalidArgumentError(file, ": ", status.ToString());
  return OrderedJson::parse(text);
}

// The nll of the validated sentences; nullopt if there are none: the run does not validate, or no sample fits its
// micro-batches (it then fails with a remedy).
absl::StatusOr<std::optional<double>> UnigramLevel(const config::RunConfig& config) {
  if (config.validation().every_steps() == 0 || config.data().validation().empty()) return std::nullopt;
  HADAL_ASSIGN_OR_RETURN(const Corpus train, Corpus::Open(config.data().train()));
  HADAL_ASSIGN_OR_RETURN(const Corpus validation, Corpus::Open(config.data().validation()));
  const BatchCapacity capacity = {.source_rows = config.batch().source_tokens(),
                                  .target_rows = config.batch().target_tokens(),
                                  .sentence_rows = config.model().max_positions()};
  const absl::StatusOr<ValidationSamples> validated =
      ChooseValidationSamples(validation, capacity, config.validation().max_sentences());
  if (absl::IsInvalidArgument(validated.status())) return std::nullopt;  // nothing fits
  HADAL_RETURN_IF_ERROR(validated.status());
  return UnigramNll(train, validation, validated->samples);
}

absl::Status AddChanges(const std::string& resolved, const config::RunConfig& config, OrderedJson& answer) {
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig before, LoadConfig({resolved}, {}));
  HADAL_ASSIGN_OR_RETURN(std::vector<ConfigDifference> differences, CompareConfigs(before, config));
  answer["limits"] = std::any_of(differences.begin(), differences.end(), [](const ConfigDifference& difference) {
    return absl::StartsWith(difference.field, "stop.");
  });
  std::vector<ConfigDifference> layout = differences;
  std::erase_if(layout, [](const auto& difference) {
    return !absl::StartsWith(difference.field, "pipeline.") || difference.field == "pipeline.wait_timeout_seconds";
  });
  answer["layout"] = DifferencesText(layout);
  std::erase_if(differences, [](const ConfigDifference& difference) { return difference.may_change; });
  answer["changes"] = DifferencesText(differences);
  return absl::OkStatus();
}

class Cells {
 public:
  absl::StatusOr<OrderedJson> Answer(const OrderedJson& question) {
    if (question.contains("grid")) return ReadGrid(question["grid"]);
    const std::vector<std::string> files = question.at("files"), overrides = question.at("set");
    HADAL_ASSIGN_OR_RETURN(const config::RunConfig config, LoadConfig(files, overrides));
    OrderedJson answer{{"cost", CellCost(config)}, {"steps", config.stop().steps()}};
    HADAL_RETURN_IF_ERROR(WithOrigins(Complete(question, config, answer), files, overrides));
    return answer;
  }

 private:
  absl::Status Complete(const OrderedJson& question, const config::RunConfig& config, OrderedJson& answer) {
    if (question.contains("effect")) {
      HADAL_RETURN_IF_ERROR(MakeRunOptions(config).status());
      HADAL_RETURN_IF_ERROR(CheckFieldsWithEffect(config));
    }
    if (question.contains("corpus")) HADAL_RETURN_IF_ERROR(CheckCorpus(config));
    if (question.contains("unigram")) {
      HADAL_ASSIGN_OR_RETURN(const std::optional<double> level, Unigram(config));
      if (level) answer["unigram_nll"] = *level;
    }
    if (!question.contains("run")) return absl::OkStatus();
    const std::string resolved = JoinPath(question["run"].get<std::string>(), kResolvedConfigName);
    return PathExists(resolved) ? AddChanges(resolved, config, answer) : absl::OkStatus();
  }

  absl::Status CheckCorpus(const config::RunConfig& config) {
    HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
    HADAL_RETURN_IF_ERROR(CheckTrainable(options.train));
    const std::string& prefix = options.train.train_data;
    if (!manifests_.contains(prefix)) {
      HADAL_ASSIGN_OR_RETURN(const Corpus corpus, Corpus::Open(prefix));
      manifests_[prefix] = corpus.manifest();
    }
    HADAL_RETURN_IF_ERROR(FollowCorpus(manifests_[prefix], options.train));
    return ValidateModelOptions(options.train.model);
  }

  absl::StatusOr<std::optional<double>> Unigram(const config::RunConfig& config) {
    // All that determines which samples are validated.
    const std::string key = OrderedJson{config.data().train(),
                                        config.data().validation(),
                                        config.validation().max_sentences(),
                                        config.validation().every_steps() > 0,
                                        config.batch().source_tokens(),
                                        config.batch().target_tokens(),
                                        config.model().max_positions()}
                                .dump();
    if (!levels_.contains(key)) {
      HADAL_ASSIGN_OR_RETURN(levels_[key], UnigramLevel(config));
    }
    return levels_[key];
  }

  std::map<std::string, CorpusManifest> manifests_;  // by corpus
  std::map<std::string, std::optional<double>> levels_;
};

void AnswerCells(std::istream& questions, std::ostream& answers) {
  Cells cells;
  absl::Status status;
  for (std::string line; status.ok() && std::getline(questions, line);) {
    absl::StatusOr<OrderedJson> answer = cells.Answer(OrderedJson::parse(line));
    status = answer.status();
    if (!status.ok()) answer = OrderedJson{{"error", status.message()}, {"exit_code", ToolExitCode(status)}};
    answers << answer->dump(-1, ' ', false, OrderedJson::error_handler_t::replace) << "\n";
  }
  answers << std::flush;
}

}  // namespace

void AddConfigCellsCommand(Command app, int& /*exit_code*/) {
  Command command = app.FindCommand("config").AddCommand(
      "cells", "Internal: queries of `hadal compare` and `hadal sweep` as JSON lines");
  command.Runs([] { AnswerCells(std::cin, std::cout); });
}

}  // namespace hadal
