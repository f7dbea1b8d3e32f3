// The sink that writes RUN/metrics.jsonl: one JSON object per line, each written whole, so that `tail -F`, a crash and
// a full disk never show part of a step.
//
//   {"event":"run","attempt":…, …}   at the start and at each resumption
//   {"event":"step","step":12,"update":13,"loss":…,"nll":…,"perplexity":…,"learning_rate":…,"gradient_norm":…,
//    "target_tokens":…,"tokens_per_second":…,"step_seconds":…,"elapsed_seconds":…,"epoch":…,"skipped":false,
//    "measured_bubble":…,"analytic_bubble":…,"stages":[{"forward":…,"recompute":…,"backward":…,"wait":…,
//    "communication":…,"optimizer":…,"arena_bytes":…,"held_bytes":…,"peak_resident_bytes":…},
//    …],"depth_gradient_norms":[…]}
//   {"event":"depth","step":…,"update":…,"model_update":…,"seconds":…,"parameter_gradient":[…],"update_ratio":[…], …}
//                              a recorded step of the instruments: one list per series of runtime/depth_metrics.h, one
//                              value per sublayer; null: no such tensor; "not finite": the value was not finite
//   {"event":"validation","step":…,"nll":…,"perplexity":…,"bleu":…,"best":…,"sentences":…,"seconds":…}
//   {"event":"checkpoint","step":…,"directory":…,"seconds":…,"stall_seconds":…,"interval_seconds":…}
//   {"event":"notice"|"warning"|"sample","step":…,"text":…}     {"event":"finish","reason":…}
// Doubles are written so that they read back to the same bits. A number that is not finite is null (JSON has no NaN);
// an absent optional value has no key. Depth norms have four digits. They are written at step 1 and every
// `depth_every_steps` steps; from the 100th such step on at every tenth of them, from the 1,000th at every hundredth,
// and so on, because a deep model has thousands of norms per step.
//
// Resumption: opening with first_step = s leaves out the first step ≥ s and everything after it, so that the lines
// appended later repeat no step. They leave a gap if an earlier attempt ended while its disk was full and the run
// resumes from a copy in memory (pipeline/checkpoint/memory_copies.h), or if it resumes from another run's checkpoint:
// a line of event "warning" then names the steps. A line truncated by a crash is left out with everything after it.
// One writer: each attempt copies what remains to a file of its own, PATH.<attempt>, and renames it to PATH. If an
// earlier attempt still appends, that goes to its own file, which no longer has a name. `may_write` is called between
// copy and rename; pipeline/checkpoint/run_owner.h says why. Readers who follow the file must open it again (`tail
// -F`).
// A link at PATH is refused, because its target may not be hadal's file. A file without any line of hadal's belongs to
// a user, or is damaged: it is moved to PATH.replaced.<attempt>.
// A full disk: lines that cannot be written are held in memory (append_whole.h) and written when there is space again;
// the user is warned at the first. Lines beyond what is held are counted in a line of event "warning" in their place.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "runtime/files.h"
#include "runtime/metrics_sink.h"
#include "tools/output/append_whole.h"

namespace hadal {

// Whether depth norms are written at `step`; `every`: the initial interval.  REQUIRES: step ≥ 1, every ≥ 1.
bool IsDepthStep(int64_t step, int64_t every);

class MetricsJsonl : public MetricsSink {
 public:
  struct Options {
    std::string path;
    int64_t first_step = 1;  // the next step to run
    int64_t depth_every_steps = 10;
    std::string attempt = "new";                     // of this attempt
    std::function<absl::Status()> may_write{};       // whether this attempt owns the run directory; empty: yes
    std::function<void(const std::string&)> warn{};  // receives warnings for the user; empty: none
  };

  // Replaces the file as above. Errors: that of may_write; those of files, with `path`.
  static absl::StatusOr<std::unique_ptr<MetricsJsonl>> Open(const Options& options);

  void OnStart(const RunInfo& run) override;
  void OnStep(const StepMetrics& metrics) override;
  void OnDepth(const DepthMetrics& metrics) override;
  void OnValidation(const ValidationMetrics& metrics) override;
  void OnCheckpoint(const CheckpointMetrics& metrics) override;
  void OnText(int64_t step, TextKind kind, std::string_view text) override;
  void OnFinish(std::string_view reason) override;
  // Errors: lines could not be written and are lost, unless a later call can write them.
  absl::Status Flush() override;

 private:
  MetricsJsonl(Options options, FileDescriptor file)
      : options_(std::move(options)), file_(std::move(file), options_.path) {}
  void WriteLine(std::string line);
  void Warn(const std::string& text) const;
  // Warns when lines begin to be held, and when they have been written, with the number of lost ones.
  void TellOfHeldLines(const absl::Status& written);

  Options options_;
  WholeAppender file_;
  int64_t step_ = 0;      // the last step reported
  bool holding_ = false;  // the file lacks lines
};

}  // namespace hadal
