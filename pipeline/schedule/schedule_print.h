// Draws a schedule as text for `hadal schedule print`: one row per rank, one column per unit of time.
//
//   rank 0  F0 F1 .  .  B0 -- .  B1 --
//   rank 1  .  F0 B0 -- F1 B1 -- .  .
//
// F3 is the forward of micro-batch 3, B3 its backward, I3 and W3 the input half and the weight half of its backward;
// "--" is a further unit of time of the same instruction, "." idle time. With several chunks per rank, the chunk's
// letter follows: F3b is micro-batch 3 on the rank's second chunk (the 27th chunk and later ones have a number from
// 0: F3:26). Of a long timeline only the beginning and the end are shown, of many ranks the first and the last; the
// drawing says how many are left out. Times come from a replay with forward = 1 unit and transfers that take no time.
// Threads: pure. Blocking: none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

struct SchedulePrintOptions {
  // A backward takes this many units of time (a forward takes one). If it is in halves, each takes at least one: the
  // weight half takes one, the input half the rest.
  int backward_units = 2;
  int outstanding_sends = 1;  // messages that a channel may have in flight, ≥ 1
  bool forward_only = false;  // whether the programs are those of a validation
  int max_columns = 48;       // units of time shown, ≥ 2
  int max_ranks = 32;         // rows shown, ≥ 2
};

// Returns the drawing; every line ends with '\n'. The last line states the makespan and the idle share.
// Errors: those of ReplaySchedule; InvalidArgument for options out of range.
absl::StatusOr<std::string> DrawSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                         const SchedulePrintOptions& options);

}  // namespace hadal
