// `hadal schedule` prints and checks a pipeline's schedule, without a model and without ranks.
//
//   hadal schedule print --kind 1f1b --stages 4 --micro-batches 8 [--chunks V]        draws it over time, with bubble
//                                                                                     and live micro-batches
//     --free-links                                                                    the schedule for ranks between
//                                                                                     which messages take no time, as
//                                                                                     `hadal train` uses it on CPUs
//   hadal schedule print … --text                                                     prints its instructions, one per
//                                                                                     line
//   hadal schedule check … [--program FILE] [--outstanding-sends K]                   checks: no deadlock, nothing
//                                                                                     missing or out of order
// `check` runs the proof twice, with one outstanding send (rendezvous) and with K. FILE contains instructions as --text
// prints them. Exit codes: 0 sound, 1 refused (a deadlock: names the cycle of ranks; more received inputs than a
// channel has buffers; malformed instructions), 2 usage.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "pipeline/schedule/schedule.h"
#include "tools/command_line.h"

namespace hadal {

// Schedules as text, one instruction per line, which can be edited by hand and checked:
//
//   0 forward 0 3          rank, operation, chunk, micro-batch
//   0 global_norm          tail operations have no numbers
// The lines of a rank are in the order of execution; ranks may be in any order. '#' starts a comment.
// Threads: pure. Blocking: none.
std::string ScheduleToText(const std::vector<RankProgram>& programs);

// Parses the programs of ranks 0 … stages − 1. It does not check that they fit each other (CheckSchedule does).
// Errors: InvalidArgument with `name` and the line.
absl::StatusOr<std::vector<RankProgram>> ScheduleFromText(absl::string_view text, const std::string& name, int stages);

struct ScheduleCommandOptions {
  ScheduleKind kind = ScheduleKind::k1F1B;
  ScheduleShape shape{.stages = 4, .chunks = 1, .micro_batches = 8};
  int outstanding_sends = 2;
  bool forward_only = false;  // the schedule of a validation
  bool text = false;          // print instructions instead of the drawing
  std::string program;        // a file to check instead of the schedule of `kind`
  int backward_units = 2;     // of the drawing: a backward's units of time; a forward takes one
  int columns = 48;           // of the drawing: units of time shown
};

// Returns the drawing or the text.  Errors: InvalidArgument.
absl::StatusOr<std::string> PrintSchedule(const ScheduleCommandOptions& options);
// Returns the checker's findings as text.  Errors: those of CheckSchedule.
absl::StatusOr<std::string> CheckScheduleCommand(const ScheduleCommandOptions& options);

// Registers the subcommand; its callbacks store the exit code.
void AddScheduleCommand(Command app, int& exit_code);

}  // namespace hadal
