// The sink that writes RUN/metrics.jsonl: one JSON object a line, written line by line, so that `tail -f`, a crash and
// a full disk all leave whole steps.
//
//   {"event":"run", …}         at the start and at each resumption
//   {"event":"step","step":12,"update":13,"loss":…,"nll":…,"perplexity":…,"learning_rate":…,"gradient_norm":…,
//    "target_tokens":…,"tokens_per_second":…,"step_seconds":…,"elapsed_seconds":…,"epoch":…,"skipped":false,
//    "measured_bubble":…,"analytic_bubble":…,"stages":[{"forward":…,"recompute":…,"backward":…,"wait":…,
//    "communication":…,"optimizer":…,"arena_bytes":…,"held_bytes":…,"peak_resident_bytes":…},
//    …],"depth_gradient_norms":[…]}
//   {"event":"depth","step":…,"update":…,"model_update":…,"seconds":…,"parameter_gradient":[…],"update_ratio":[…], …}
//                              a recorded step of the instruments: a list a series of runtime/depth_metrics.h, a value
//                              a sublayer; null: no such tensor; "not finite": as it says
//   {"event":"validation","step":…,"nll":…,"perplexity":…,"bleu":…,"best":…,"sentences":…,"seconds":…}
//   {"event":"checkpoint","step":…,"directory":…,"seconds":…,"stall_seconds":…,"interval_seconds":…}
//   {"event":"notice"|"warning"|"sample","step":…,"text":…}     {"event":"finish","reason":…}
// Doubles are written so that they read back to the same bits. A number that is not finite is null (JSON has no NaN);
// an optional value that is absent has no key. Depth norms have four digits and appear every `depth_every_steps` steps,
// from the 100th such step on at every tenth of them, from the 1,000th on at every hundredth …: a deep model's norms
// are thousands of numbers a step.
//
// Resumption: opened with first_step = s, the file loses its steps ≥ s and everything after the first of them, so that
// the lines that follow leave no gap and double no step. A line cut short by a crash goes with what follows it. What is
// read is what goes, and the last step that stays: not the file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/files.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Whether step `step` is one at which depth norms are written, of every `every` at first.  REQUIRES: step ≥ 0, every ≥
// 1.
bool IsDepthStep(int64_t step, int64_t every);

class MetricsJsonl : public MetricsSink {
 public:
  struct Options {
    std::string path;
    int64_t first_step = 0;  // the step about to run
    int64_t depth_every_steps = 10;
  };

  // Opens the file for appending, truncated as above. Errors: the file cannot be read, truncated or opened.
  static absl::StatusOr<std::unique_ptr<MetricsJsonl>> Open(const Options& options);

  void OnStart(const RunInfo& run) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnDepth(const DepthMetrics& metrics) override;
  void OnValidation(const ValidationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;
  void OnText(int64_t step, TextKind kind, std::string_view text) override;
  void OnFinish(std::string_view reason) override;
  absl::Status Flush() override;

 private:
  MetricsJsonl(Options options, FileDescriptor file) : options_(std::move(options)), file_(std::move(file)) {}
  void WriteLine(std::string line);

  Options options_;
  FileDescriptor file_;
  absl::Status trouble_;  // the first one, until Flush() hands it out
};

}  // namespace hadal
