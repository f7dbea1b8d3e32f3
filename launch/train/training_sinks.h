// TrainingSinks writes a run's messages and metrics: each rank's log; on rank 0 also metrics.jsonl, TensorBoard events,
// the progress line and the timeline of --trace.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pipeline/plan/grid_shape.h"
#include "pipeline/plan/train_options.h"
#include "pipeline/step_tracer.h"
#include "runtime/metrics_sink.h"
#include "tools/metrics/rank_log.h"

namespace hadal {

class TrainingSinks {
 public:
  // `place`: what is known of it before the model is cut.
  TrainingSinks(RankPlace place, std::string run_directory)
      : place_(std::move(place)), run_directory_(std::move(run_directory)) {}

  MetricsSink& sink() { return fan_out_; }
  // Creates the run directory and opens the files; rank 0 writes config.resolved.textproto. Call before training
  // starts.
  absl::Status Open(const GridShape& grid, const std::string& config_text, int64_t first_step);
  // Prints a message for the user to stderr at once, and logs it once the log is open.  Threads: any, once it is open.
  void Tell(const std::string& text);
  // A warning that all ranks have: rank 0 prints it.
  void Warn(const std::string& text);
  // The steps of --trace, "steps=7-9", whose timeline is then written into the run directory; "": none. This object
  // must outlive the result.  Errors: InvalidArgument if it is no list of steps, or goes beyond `stop`.
  absl::StatusOr<TraceRequest> MakeTraceRequest(const std::string& steps, const StopOptions& stop);
  // Ends the run, with `reason`.  Errors: the first error that writing has met.
  absl::Status Finish(std::string_view reason);
  // Logs the process's exit code and last message; call it last. If Open was not called, it opens the log and also
  // writes what was told before, if the run directory exists or the error is not the user's (kExitUsage: a misspelt
  // field creates no directory).
  void LogEnd(int exit_code, const std::string& message);

 private:
  absl::Status OpenLog();

  RankPlace place_;
  std::string run_directory_;
  std::string told_;              // messages before the log was open
  std::unique_ptr<RankLog> log_;  // null: not open
  std::unique_ptr<RankLogStream> progress_log_;
  MetricsFanOut fan_out_;
};

}  // namespace hadal
