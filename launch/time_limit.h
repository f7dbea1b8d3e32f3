// The time limit of a job: when it is reached, the run saves and exits with 85, as on a signal. A monotonic clock
// measures the time left, so setting the machine's clock during the run changes nothing. The ranks' earliest limit
// counts. If a host's clock differs from that of the host that set HADAL_JOB_START, its limit is off by the difference.
//
// The limit is the earlier of two times: `--stop-after 3h55m` after the job's start, and Slurm's end of the job
// (SLURM_JOB_END_TIME) less a margin, a tenth of the job's time but at most 5 minutes. If a supervisor restarts the
// run, --stop-after counts from the job's first start; after a requeue by Slurm, from the new start. A
// SLURM_JOB_END_TIME in the past is ignored: it is then of another Slurm job, in whose shell this one was started. A
// run that reaches the limit can be continued; one that reaches the config's stop.minutes is done (exit code 0).
// Limitation: the limit is checked only where a step's gradient norms are exchanged, and before and within a validation
// (pipeline/trainer.h). The margin must cover the longest interval between two checks, a step, and a save.
// Thread safety: any thread.
#pragma once

#include <limits>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/clock.h"

namespace hadal {

// The largest margin between the end of the run and Slurm's end of the job.
inline constexpr absl::Duration kLongestMargin = absl::Minutes(5);

class TimeLimit {
 public:
  TimeLimit() = default;  // no limit
  // `stop_after`: "3h55m", "90s"; empty: none. Reads the environment.
  // Errors: InvalidArgument (not a duration, or not positive).
  static absl::StatusOr<TimeLimit> Make(const std::string& stop_after);

  absl::Time at() const { return at_; }  // by the machine's clock at Make; absl::InfiniteFuture(): no limit
  bool Reached() const { return since_start_.Seconds() >= seconds_; }

 private:
  TimeLimit(absl::Time at, absl::Time now) : at_(at), seconds_(absl::ToDoubleSeconds(at - now)) {}
  absl::Time at_ = absl::InfiniteFuture();
  double seconds_ = std::numeric_limits<double>::infinity();  // from Make to the limit
  Stopwatch since_start_;
};

// Sets HADAL_JOB_START to the current time for this process's children, unless it is set already by a program that
// starts this process repeatedly (launch/hosts/train).
void MarkJobStart();

}  // namespace hadal
