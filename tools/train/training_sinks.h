// TrainingSinks writes a run's messages and metrics: each rank's log; on rank 0 also metrics.jsonl, TensorBoard events,
// the progress line and the timeline of --trace.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/device_choice.h"
#include "launch/time_limit.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
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

class TrainingSinks {
 public:
  // `place`: may lack the pipeline position, which is known only after the model is partitioned.
  TrainingSinks(RankIdentity identity, std::string run_directory)
      : identity_(std::move(identity)), run_directory_(std::move(run_directory)) {}

  MetricsSink& sink() { return fan_out_; }
  // Opens the files; rank 0 writes config.resolved.textproto. Call before training starts, after the attempt `attempt`
  // has claimed the run directory.  Errors: Aborted if it owns it no longer; those of files.
  absl::Status Open(const GridShape& grid, const std::string& config_text, int64_t first_step,
                    const std::string& attempt);
  // Prints a message for the user to stderr at once and logs it (after Open, if earlier). Threads: any, after Open.
  void Tell(const std::string& text);
  // Prints a warning that all ranks report; only rank 0 prints it.
  void Warn(const std::string& text);
  // Parses the steps of --trace ("steps=7-9"); the trainer then writes their timeline into the run directory. "": no
  // trace. This object must outlive the result.  Errors: InvalidArgument if `steps` is malformed or goes beyond `stop`.
  absl::StatusOr<TraceRequest> MakeTraceRequest(const std::string& steps, const StopOptions& stop);
  // Writes the end of the run with `reason` and flushes all files.  Errors: the first write error.
  absl::Status Finish(std::string_view reason);
  // Logs the process's exit code and last message; must be the last call. If Open was not called, first opens the log
  // and writes the earlier messages, except in two cases: a usage error (kExitUsage) creates no run directory, and a
  // launch that another one keeps out (`end` is Aborted) writes nothing there.
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
  bool deepen = false;                // init_from's model has fewer layers
  std::string deepen_rule = "split";  // or "zero"
  bool accept_changes = false;
  std::vector<std::string> reset;  // "best", "data"

  // --resume and --reset, as they are stored and compared.
  std::string StartRequest() const;
  bool Resets(const std::string& what) const;
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

// Prepares `hadal train` on one rank: reads command line and config files, converts them to TrainOptions, and opens the
// corpora and their vocabularies.
//
// Does not communicate: a rank reports its error in its RankSetup (rank_setup.h). Blocking: reads files. Threads: one
// per rank.
// Converts `config` (from LoadConfig(arguments.config)) to options and opens the corpora. `share`: the part of the
// corpora's bytes that this rank verifies; the ranks of a host verify them together.
// Errors: those of LoadConfig; InvalidArgument, naming the file or argument that set the field; file errors.
absl::StatusOr<PreparedRun> PrepareRun(const TrainArguments& arguments, absl::StatusOr<config::RunConfig> config,
                                       const CorpusShare& share);

// If `error` names config fields, appends the file or argument that set each of them.
absl::Status Explained(const absl::Status& error, const TrainArguments& arguments);

}  // namespace hadal
