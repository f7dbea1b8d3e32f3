// When a run saves, and what it says about it: begun at a step's end, asked after at the ends of the steps that follow,
// finished before the next one begins.
//
//   step N ends   Begin      weights, moments and progress as they are now; the steps N + 1 … train while they are
//                            written
//   step ends     Poll       once it is committed: told to the sink
//   the run ends  SaveAtEnd  waits for the one under way, saves the last step if it is not yet, and waits for that
//
// A checkpoint that cannot be written is a warning while training goes on, and an error where the run would end without
// it.
// Threads: one a rank. Every rank makes every call at the same place.
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
  // `sink`: rank 0's, null on the others. All must outlive the object.
  SaveCycle(TrainingCheckpoints& checkpoints, MetricsSink* sink, TraceBuffer& trace)
      : checkpoints_(checkpoints), sink_(sink), trace_(trace) {}

  // The run begins; nothing is saved of `first_step`, which it starts from.
  void Restart(int64_t first_step);
  // Errors of all: Aborted (another job took over the run directory); those of transfers.
  absl::Status Begin(const TrainingProgress& progress, bool is_best);
  absl::Status Poll(int64_t step);
  // Waits for the save under way, if there is one.
  absl::Status Finish(int64_t step);
  // Errors: those of files as well.
  absl::Status SaveAtEnd(const TrainingProgress& progress, bool is_best);

  // The last one written by this run, if any (rank 0).
  const std::string& last_directory() const { return last_directory_; }

 private:
  void Start(const TrainingProgress& progress, bool is_best);
  void OnSaved(const SavedCheckpoint& saved);
  absl::Status OnFailed(int64_t step, const absl::Status& status);

  TrainingCheckpoints& checkpoints_;
  MetricsSink* const sink_;
  TraceBuffer& trace_;
  std::string last_directory_;
  int64_t last_saved_step_ = -1;
  int64_t step_ = 0;             // of the save under way
  double interval_seconds_ = 0;  // from the beginning of the one before to its beginning
  Stopwatch since_begin_;
};

}  // namespace hadal
