// Schedules as text, one instruction a line, so that a person can edit one and have it checked:
//
//   0 forward 0 3          rank, operation, chunk, micro-batch
//   0 global_norm          the tail's operations have no numbers
// Lines of a rank are in the order of execution; ranks may come in any order. '#' starts a comment.
// Threads: pure. Blocking: none.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pipeline/schedule.h"

namespace hadal {

std::string ScheduleToText(const std::vector<RankProgram>& programs);

// Programs of ranks 0 … stages − 1. Whether they fit each other is the checker's question.
// Errors: InvalidArgument with `name` and the line.
absl::StatusOr<std::vector<RankProgram>> ScheduleFromText(absl::string_view text, const std::string& name, int stages);

}  // namespace hadal
