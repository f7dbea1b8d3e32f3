#include "tools/plan/schedule_command.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "pipeline/schedule/schedule_check.h"
#include "pipeline/schedule/schedule_print.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

std::string PeakLiveText(const ScheduleReport& report) {
  std::string text = "micro-batches live at once, by rank:";
  for (size_t rank = 0; rank < report.peak_live.size(); ++rank) {
    absl::StrAppend(&text, " ", report.peak_live_of_rank[rank]);
    if (report.peak_live[rank].size() > 1) {
      absl::StrAppend(&text, " (chunks ", absl::StrJoin(report.peak_live[rank], ", "), ")");
    }
  }
  text += "\n";
  if (std::ranges::any_of(report.peak_pending, [](int peak) { return peak > 0; })) {
    absl::StrAppend(&text, "weight halves pending at once, by rank: ", absl::StrJoin(report.peak_pending, " "), "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> PrintSchedule(const ScheduleCommandOptions& options) {
  const ScheduleShape& shape = options.shape;
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankProgram> programs,
                         options.forward_only ? MakeForwardSchedules(shape) : MakeSchedules(options.kind, shape));
  HADAL_ASSIGN_OR_RETURN(const std::string drawing, DrawSchedule(programs, shape,
                                                                 {.backward_units = options.backward_units,
                                                                  .outstanding_sends = options.outstanding_sends,
                                                                  .forward_only = options.forward_only,
                                                                  .max_columns = options.columns}));
  HADAL_ASSIGN_OR_RETURN(const ScheduleReport report, CheckSchedule(programs, shape,
                                                                    {.outstanding_sends = options.outstanding_sends,
                                                                     .forward_only = options.forward_only}));
  std::string text =
      absl::StrFormat("%s, %d stage(s), %d chunk(s) per rank, %d micro-batch(es)\n%s%s", ToString(options.kind),
                      shape.stages, shape.chunks, shape.micro_batches, drawing, PeakLiveText(report));
  const std::optional<double> bubble =
      options.forward_only ? std::nullopt : AnalyticBubbleFraction(options.kind, shape);
  if (bubble) absl::StrAppendFormat(&text, "bubble by the formula: %.1f%% of the step\n", 100 * *bubble);
  return text;
}

void AddScheduleCommand(Command app, int& exit_code) {
  Command schedule = app.AddCommand("schedule", "Draw a pipeline's schedule");
  schedule.RequireCommand();
  Command command = schedule.AddCommand("print", "Draw the schedule, one row per rank");
  auto options = std::make_shared<ScheduleCommandOptions>();
  auto kind = std::make_shared<std::string>("1f1b");
  constexpr int kMost = 1 << 16;
  command.AddOption("--kind", *kind, "Schedule").OneOf(AllScheduleNames()).ShowDefault();
  command.AddNumber("--stages", options->shape.stages, "Ranks of the pipeline", 1, kMost);
  command.AddNumber("--chunks", options->shape.chunks, "Chunks per rank", 1, kMost);
  command.AddNumber("--micro-batches", options->shape.micro_batches, "Micro-batches per step", 1, kMost);
  command.AddNumber("--outstanding-sends", options->outstanding_sends, "Messages that a channel may have in flight", 1,
                    kMost);
  command.AddFlag("--free-links", options->shape.free_links, "Messages take no time: the schedule of a run on CPUs");
  command.AddFlag("--forward-only", options->forward_only, "Use the forward-only schedule of a validation");
  command.AddNumber("--columns", options->columns, "Units of time to draw", 2, kMost);
  command.AddNumber("--backward-units", options->backward_units, "A backward takes as long as this many forwards", 1,
                    100);
  command.Runs([options, kind, &exit_code] {
    options->kind = *ParseScheduleKind(*kind);
    exit_code = EndTool("schedule print", PrintSchedule(*options));
  });
}

}  // namespace hadal
