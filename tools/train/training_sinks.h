// TrainingSinks writes a run's messages and metrics: each rank's log; on rank 0 also metrics.jsonl, TensorBoard events,
// the progress line and the timeline of --trace.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/options/train_options.h"
#include "pipeline/step_tracer.h"
#include "runtime/metrics_sink.h"
#include "tools/output/rank_log.h"

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

}  // namespace hadal
