// Draws a schedule as text, one row a rank, one column a unit of time, for `hadal schedule print`:
//
//   rank 0  F0 F1 .  .  B0 -- B1 --
//   rank 1  .  F0 F1 B0 -- B1 -- .
//
// F3 is micro-batch 3 forward, B3 backward, "--" its later units, "." idle. With several chunks a letter follows: F3b
// is micro-batch 3 on the rank's second chunk (from the 27th on, a number: F3:26). Long timelines keep their beginning
// and end, many ranks the first and the last; what is left out is counted. Times are a replay with forward = 1 unit,
// free transfers. Threads: pure. Blocking: none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule.h"

namespace hadal {

struct SchedulePrintOptions {
  int backward_units = 2;  // a backward takes as long as this many forwards
  int outstanding_sends = 1;
  bool forward_only = false;
  int max_columns = 48;  // units of time shown, ≥ 2
  int max_ranks = 32;    // rows shown, ≥ 2
};

// The drawing, every line ended by '\n', and a last line with the makespan and the idle share.
// Errors: ReplaySchedule's; InvalidArgument for options out of range.
absl::StatusOr<std::string> DrawSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                         const SchedulePrintOptions& options);

}  // namespace hadal
