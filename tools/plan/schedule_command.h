// `hadal schedule print` draws a pipeline's schedule over time, with its bubble and the micro-batches that are live at
// once, and proves it free of deadlock; without a model and without ranks.
//
//   hadal schedule print --kind 1f1b --stages 4 --micro-batches 8 [--chunks V] [--outstanding-sends K]
//     --free-links      the schedule for ranks between which messages take no time, as `hadal train` uses it on CPUs
// Exit codes: 0 sound, 1 refused (a deadlock: names the cycle of ranks; more received inputs than a channel has
// buffers), 2 usage.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "pipeline/schedule/schedule.h"

namespace hadal {

struct ScheduleCommandOptions {
  ScheduleKind kind = ScheduleKind::k1F1B;
  ScheduleShape shape{.stages = 4, .chunks = 1, .micro_batches = 8};
  int outstanding_sends = 2;  // messages that a channel may have in flight, ≥ 1
  bool forward_only = false;  // the schedule of a validation
  int backward_units = 2;     // of the drawing: a backward's units of time; a forward takes one
  int columns = 48;           // of the drawing: units of time shown
};

// Returns the text to print. Errors: those of MakeSchedules, DrawSchedule and CheckSchedule.
absl::StatusOr<std::string> PrintSchedule(const ScheduleCommandOptions& options);

}  // namespace hadal
