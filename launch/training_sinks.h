// Where a run's metrics go: metrics.jsonl, TensorBoard events and the progress line, all on rank 0.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "pipeline/train_options.h"
#include "runtime/metrics_sink.h"

namespace hadal {

class TrainingSinks {
 public:
  // `is_main`: this is rank 0; other ranks have sinks that do nothing.
  TrainingSinks(bool is_main, const TrainOptions& options);

  MetricsSink& sink() { return fan_out_; }
  // Makes the run directory, writes config.resolved.textproto and opens the files. Call before training starts.
  absl::Status Open(const std::string& config_text, int64_t first_step);
  // For people, at once.
  void Warn(std::string_view text);
  absl::Status Finish(std::string_view reason);

 private:
  bool is_main_;
  std::string run_directory_;
  MetricsFanOut fan_out_;
};

}  // namespace hadal
