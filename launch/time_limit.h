// The wall-clock limit of a job: when it comes, the run saves and ends with exit code 85, as on a signal.
//
// The limit is the earlier of `--stop-after 3h55m`, counted from the job's start, and Slurm's end of the job
// (SLURM_JOB_END_TIME) less a margin of a tenth of the job's time, 5 minutes at most. A job that its supervisor starts
// again goes on counting from its first start.
// Why not stop.minutes: that one is a way for a run to be done (exit code 0); this one asks for the run to be
// continued.
// Limitation: looked at where a step's gradient norms are exchanged, and before a validation (pipeline/trainer.h). So
// the margin must hold the longest of what lies between, a step or a validation, and a save.
// Threads: any.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace hadal {

// The most that is left between the run's last step and the moment Slurm ends the job.
inline constexpr absl::Duration kLongestMargin = absl::Minutes(5);

class TimeLimit {
 public:
  TimeLimit() = default;  // none
  // `stop_after`: "3h55m", "90s"; empty: none. Reads the environment.
  // Errors: InvalidArgument (not a duration, or not positive).
  static absl::StatusOr<TimeLimit> Make(const std::string& stop_after);

  absl::Time at() const { return at_; }  // absl::InfiniteFuture(): no limit
  bool Reached() const;

 private:
  explicit TimeLimit(absl::Time at) : at_(at) {}
  absl::Time at_ = absl::InfiniteFuture();
};

// Puts the present moment into the environment as the job's start, for the processes started from here. A start that is
// there already stays: whoever set it starts this process again and again (launch/hosts/train).
void MarkJobStart();

}  // namespace hadal
