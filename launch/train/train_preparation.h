// Prepares `hadal train` on each rank by itself: command line and config files → plain options → corpora and their
// vocabularies.
//
// No communication: a rank that fails says so in its StartFacts (start_facts.h). Blocking: reads files. Threads: one
// per rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/job/device_choice.h"
#include "launch/job/time_limit.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/data/corpus.h"
#include "runtime/data/corpus_vocabulary.h"
#include "tools/config/config_arguments.h"
#include "tools/config/run_options.h"
#include "tools/plan/cost_files.h"

namespace hadal {

// The command line.
struct TrainArguments {
  ConfigArguments config;
  std::string run_directory = "run";
  std::string resume = "auto";  // or "never", or a checkpoint
  std::string init_from;        // a checkpoint or a run directory; empty: none
  bool accept_changes = false;
  std::string trace;       // "steps=100-102"; empty: none
  std::string stop_after;  // "3h55m"; empty: none
  DeviceRequest device;
  CostFiles costs;
};

// What the config and corpus files contain.
struct PreparedRun {
  config::RunConfig config;
  std::string config_text;  // all fields, defaults included
  RunOptions options;
  std::optional<Corpus> train, validation;         // `train` is always set once prepared
  std::optional<CorpusVocabularies> vocabularies;  // of both; always set once prepared
  std::vector<Attachment> attachments;             // the same as files to be stored with every checkpoint
  TimeLimit time_limit;
};

// Follows `config`, LoadConfig's of arguments.config, and reads the corpora. `share`: this rank's part of their bytes,
// which the ranks of a host read together.
// Errors: LoadConfig's; InvalidArgument, with the file or argument that set a field; file errors.
absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share);

// Adds to an error that names fields where those were set.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments);

}  // namespace hadal
