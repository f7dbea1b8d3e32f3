// Prepares `hadal train` on one rank: reads command line and config files, converts them to TrainOptions, and opens the
// corpora and their vocabularies.
//
// Does not communicate: a rank reports its error in its RankSetup (rank_setup.h). Blocking: reads files. Threads: one
// per rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/device_choice.h"
#include "launch/time_limit.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/data/corpus.h"
#include "tools/config/config_arguments.h"
#include "tools/config/run_options.h"
#include "tools/plan/cost_files.h"

namespace hadal {

// The command line of `hadal train`.
struct TrainArguments {
  ConfigArguments config;
  std::string run_directory = "run";
  std::string resume = "auto";  // or "never", or a checkpoint
  std::string init_from;        // a checkpoint or a run directory; empty: none
  bool deepen = false;          // init_from's model has fewer layers
  bool accept_changes = false;
  bool take_over = false;  // although another attempt is at work in the run directory
  std::string trace;       // "steps=100-102"; empty: none
  std::string stop_after;  // "3h55m"; empty: none
  DeviceRequest device;
  CostFiles costs;
};

// The settings and data that PrepareRun returns.
struct PreparedRun {
  config::RunConfig config;
  std::string config_text;  // all fields, defaults included
  RunOptions options;
  std::optional<Corpus> train, validation;         // `train` is always set once prepared
  std::optional<CorpusVocabularies> vocabularies;  // of both; always set once prepared
  std::vector<Attachment> attachments;             // the vocabularies as files, stored with every checkpoint
  TimeLimit time_limit;
};

// Converts `config` (from LoadConfig(arguments.config)) to options and opens the corpora. `share`: the part of the
// corpora's bytes that this rank verifies; the ranks of a host verify them together.
// Errors: those of LoadConfig; InvalidArgument, naming the file or argument that set the field; file errors.
absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share);

// Appends to an error that names config fields the file or argument that set each of them.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments);

}  // namespace hadal
