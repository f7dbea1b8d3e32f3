// Where a run's words and numbers go: each rank's log; on rank 0 also metrics.jsonl, TensorBoard events and the
// progress line.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "pipeline/process_grid.h"
#include "runtime/metrics_sink.h"
#include "tools/metrics/rank_log.h"

namespace hadal {

class TrainingSinks {
 public:
  // `place`: as far as it is known before the model is cut.
  TrainingSinks(RankPlace place, std::string run_directory)
      : place_(std::move(place)), run_directory_(std::move(run_directory)) {}

  MetricsSink& sink() { return fan_out_; }
  // Makes the run directory and opens the files; rank 0 writes config.resolved.textproto. Call before training starts.
  absl::Status Open(const GridShape& grid, const std::string& config_text, int64_t first_step);
  // Whether that was done.
  bool is_open() const { return log_ != nullptr; }
  // For people, at once, on stderr; and into the log, when it is open.  Threads: any, once it is open.
  void Tell(const std::string& text);
  // A warning that all ranks have: rank 0 tells it.
  void Warn(const std::string& text);
  // The run is over, by `reason`.  Errors: the first trouble that writing has had.
  absl::Status Finish(std::string_view reason);
  // The process's last words, which are only logged. Where they come before Open, the log is opened for them, with what
  // has been told: in a run directory that is there, or for any error but the user's (kExitUsage: a misspelt field
  // makes no directory).  Call it last.
  void LogEnd(int exit_code, const std::string& message);

 private:
  absl::Status OpenLog();

  RankPlace place_;
  std::string run_directory_;
  std::string told_;              // before the log was open
  std::unique_ptr<RankLog> log_;  // null: not open
  std::unique_ptr<RankLogStream> progress_log_;
  MetricsFanOut fan_out_;
};

}  // namespace hadal
