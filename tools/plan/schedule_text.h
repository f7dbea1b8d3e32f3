// Schedules as text, one instruction per line, which can be edited by hand and checked:
//
//   0 forward 0 3          rank, operation, chunk, micro-batch
//   0 global_norm          tail operations have no numbers
// The lines of a rank are in the order of execution; ranks may be in any order. '#' starts a comment.
// Threads: pure. Blocking: none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

std::string ScheduleToText(const std::vector<RankProgram>& programs);

// Parses the programs of ranks 0 … stages − 1. It does not check that they fit each other (CheckSchedule does).
// Errors: InvalidArgument with `name` and the line.
absl::StatusOr<std::vector<RankProgram>> ScheduleFromText(absl::string_view text, const std::string& name, int stages);

}  // namespace hadal
