// What `hadal train` was asked for, and what each rank makes of it by itself: config files → plain options → corpora
// and their vocabularies.
//
// Nothing here talks to a peer: a rank that fails says so at the first vote (launch/train.cc). Blocking: reads files.
// Threads: one a rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/device_choice.h"
#include "launch/time_limit.h"
#include "pipeline/checkpoint/checkpoint.h"
#include "runtime/data/corpus.h"
#include "tools/config/config_arguments.h"
#include "tools/config/run_options.h"
#include "tools/plan/cost_files.h"

namespace hadal {

// The command line.
struct TrainArguments {
  ConfigArguments config;
  std::string run_directory = "run";
  std::string resume = "auto";  // or never, or a checkpoint
  std::string init_from;        // a checkpoint or a run directory; empty: none
  bool accept_changes = false;
  std::string trace;       // "steps=100-102"; empty: none
  std::string stop_after;  // "3h55m"; empty: no limit of its own
  DeviceRequest device;
  CostFiles costs;
};

// What the files say.
struct PreparedRun {
  config::RunConfig config;
  std::string config_text;  // every field, defaults too
  RunOptions options;
  std::optional<Corpus> train, validation;  // `train` always, once prepared
  std::vector<Attachment> vocabularies;     // as files, that every checkpoint carries along
  TimeLimit time_limit;
};

// Reads all of it; `share`: this rank's part of the corpora's bytes, which the ranks of a host read together.
// Errors: InvalidArgument, with the file or argument that set a field; those of reading.
absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, const CorpusShare& share);

// An error that names fields, told with where they were set.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments);

}  // namespace hadal
