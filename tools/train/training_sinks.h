// TrainingSinks writes a run's messages and metrics: each rank's log; on rank 0 also metrics.jsonl, TensorBoard events,
// the progress line and the timeline of --trace.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/device_choice.h"
#include "launch/time_limit.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/vocabulary_growth.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/options/train_options.h"
#include "pipeline/step_tracer.h"
#include "runtime/data/corpus.h"
#include "runtime/metrics_sink.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/output/rank_log.h"
#include "tools/plan/cost_files.h"

namespace hadal {

// Checks the place of a run directory. Errors: InvalidArgument for a checkpoint in which there is no run, and those of
// CheckPlace.
absl::Status CheckRunDirectory(const std::string& directory);

class TrainingSinks {
 public:
  // Open sets the stage, the replica and the attempt of `identity`, and the numbers of stages and replicas.
  TrainingSinks(RankIdentity identity, std::string run_directory)
      : identity_(std::move(identity)), run_directory_(std::move(run_directory)) {}

  MetricsSink& sink() { return fan_out_; }
  // Opens the files; rank 0 writes config.resolved.textproto. Call before training starts, after `attempt` (the name of
  // this start of the job) has claimed the run directory.  Errors: Aborted if another attempt owns the directory by
  // now; those of files.
  absl::Status Open(const GridShape& grid, const std::string& config_text, int64_t first_step,
                    const std::string& attempt);
  // Prints a message for the user to stderr at once, and logs it; a message before Open is logged by Open. Threads: one
  // before Open returns, then any.
  void Tell(const std::string& text);
  // On rank 0 as Tell, with "warning: " in front; does nothing on other ranks, which call it with the same warning.
  void Warn(const std::string& text);
  // Parses the steps of --trace ("steps=7-9"); the trainer then writes their timeline into the run directory. "": no
  // trace. This object must outlive the result.  Errors: InvalidArgument if `steps` is malformed or goes beyond
  // stop.steps.
  absl::StatusOr<TraceRequest> MakeTraceRequest(const std::string& steps, const StopOptions& stop);
  // Reports the end of the run, for `reason`, to all sinks and flushes all files.  Errors: the first write error.
  absl::Status Finish(std::string_view reason);
  // Logs the process's exit code and last message, and reports the exit code to a supervisor; must be the last call. If
  // Open was not called, first opens the log and writes the earlier messages, except in three cases: a usage error
  // (kExitUsage) creates no run directory, an attempt that another one has kept out (`end` is Aborted) writes nothing
  // there, and nothing is written where no run directory may be (CheckRunDirectory).
  void LogEnd(int exit_code, const absl::Status& end);

 private:
  absl::Status OpenLog();

  RankIdentity identity_;
  std::string run_directory_;
  std::string told_;              // messages before the log was open
  std::unique_ptr<RankLog> log_;  // null: not open
  std::unique_ptr<RankLogStream> progress_log_;
  MetricsFanOut fan_out_;
};

// The command line of `hadal train`.
struct TrainArguments {
  ConfigArguments config;
  std::string run_directory = "run";
  std::string resume = "auto";        // or "never", or a checkpoint
  std::string init_from;              // a checkpoint or a run directory; empty: none
  bool deepen = false;                // whether init_from's model has fewer layers
  std::string deepen_rule = "split";  // or "zero"
  NewRows new_rows = NewRows::kDraw;  // how rows of tokens that init_from's vocabulary lacks begin
  bool accept_changes = false;        // resume although settings have changed
  std::vector<std::string> reset;     // "best", "data"

  // Returns --resume and --reset in one text, as resume.h stores and compares them.
  std::string StartRequest() const;
  // Whether `reset` contains `what`.
  bool Resets(const std::string& what) const;
  bool take_over = false;  // claim the run directory even if another attempt is writing to it
  std::string trace;       // "steps=100-102"; empty: none
  std::string stop_after;  // "3h55m"; empty: none
  DeviceRequest device;
  CostFiles costs;
};

// Adds the command `train` to `app`, with its options, which set `arguments`.
Command AddTrainArguments(Command app, const std::shared_ptr<TrainArguments>& arguments);

// The settings and data that PrepareRun returns.
struct PreparedRun {
  config::RunConfig config;
  std::string config_text;  // all fields, defaults included
  RunOptions options;
  std::optional<Corpus> train, validation;         // `train` is always set once prepared
  std::optional<CorpusVocabularies> vocabularies;  // of both corpora; always set once prepared
  std::vector<Attachment> attachments;             // the vocabularies as files, stored with every checkpoint
  TimeLimit time_limit;
};

// Prepares `hadal train` on one rank: converts `config` to TrainOptions, and opens the corpora and their vocabularies.
// `config`: LoadConfig's result for arguments.config; an error is returned as it is. `share`: the part of the corpora's
// bytes that this rank verifies; the ranks of a host verify them together.
// Does not communicate: a rank reports its error in its RankSetup (rank_setup.h). Blocking: reads files.
// Errors: those of LoadConfig; InvalidArgument, naming the file or argument that set the field; file errors.
absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share);

// If `error` names config fields, appends the file or argument that set each of them.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments);

}  // namespace hadal
