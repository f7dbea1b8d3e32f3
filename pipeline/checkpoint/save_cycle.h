// SaveCycle runs the saves of a training run and reports them to the sink. A save begins at the end of a step, is
// polled at the ends of the following steps, and is finished before the next one begins.
//
//   step N ends   Begin      starts to save weights, moments and progress as they are now; training continues with the
//                 steps N + 1 …
//   step ends     Poll       reports the checkpoint to the sink once it is committed
//   the run ends  SaveAtEnd  finishes the save under way, saves the last step if necessary, and waits for that
//
// If a checkpoint cannot be written, training continues with a warning; at the end of a run it is an error.
// Threads: one per rank. Every rank makes every call at the same place.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "pipeline/checkpoint/training_checkpoints.h"
#include "runtime/clock.h"
#include "runtime/metrics_sink.h"
#include "runtime/trace.h"

namespace hadal {

class SaveCycle {
 public:
  // `sink`: rank 0's, null on the others. All arguments must outlive the object.
  SaveCycle(TrainingCheckpoints& checkpoints, MetricsSink* sink, TraceBuffer& trace)
      : checkpoints_(checkpoints), sink_(sink), trace_(trace) {}

  // The run starts from `first_step`, of which nothing needs saving.
  void Restart(int64_t first_step);
  // Errors of Begin, Poll and Finish: Aborted (another job has claimed the run directory); Unavailable and
  // DeadlineExceeded (a rank was lost).
  absl::Status Begin(const TrainingProgress& progress, bool is_best);
  absl::Status Poll(int64_t step);
  // Waits for the save under way, if there is one.
  absl::Status Finish(int64_t step);
  // Errors: also file errors.
  absl::Status SaveAtEnd(const TrainingProgress& progress, bool is_best);

  // The last checkpoint written by this run, or "" (rank 0).
  const std::string& last_directory() const { return last_directory_; }
  // Its step, or the step that the run started from; on every rank.
  int64_t last_step() const { return last_saved_step_; }

 private:
  void Start(const TrainingProgress& progress, bool is_best);
  void OnSaved(const SavedCheckpoint& saved);
  absl::Status OnFailed(int64_t step, const absl::Status& status);
  std::string LastGoodText() const;  // what the run could go back to

  TrainingCheckpoints& checkpoints_;
  MetricsSink* const sink_;
  TraceBuffer& trace_;
  std::string last_directory_;
  int64_t last_saved_step_ = -1;
  int64_t step_ = 0;             // of the save under way
  double interval_seconds_ = 0;  // from the beginning of the previous save to the beginning of this one
  Stopwatch since_begin_;
};

}  // namespace hadal
