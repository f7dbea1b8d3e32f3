#include "pipeline/schedule/schedule_print.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "pipeline/schedule/schedule_replay.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

std::string ChunkLabel(const ScheduleShape& shape, int chunk) {
  if (shape.chunks == 1) return "";
  return chunk < 26 ? std::string(1, static_cast<char>('a' + chunk)) : absl::StrCat(":", chunk);
}

const char* Letter(Operation operation) {
  switch (operation) {
    case Operation::kForward:
      return "F";
    case Operation::kBackwardInput:
      return "I";
    case Operation::kBackwardWeight:
      return "W";
    default:
      return "B";
  }
}

std::string Label(const ScheduleShape& shape, const Instruction& instruction) {
  return absl::StrCat(Letter(instruction.operation), instruction.micro_batch, ChunkLabel(shape, instruction.chunk));
}

// A weight half takes one unit, the input half the rest.
ReplayCosts Units(const std::vector<RankProgram>& programs, const ScheduleShape& shape, int backward_units) {
  const bool halves = std::any_of(programs.begin(), programs.end(), [](const RankProgram& program) {
    return std::any_of(program.begin(), program.end(), [](const Instruction& instruction) {
      return instruction.operation == Operation::kBackwardWeight;
    });
  });
  if (!halves) return EqualCosts(shape, 1, backward_units);
  ReplayCosts costs = EqualCosts(shape, 1, std::max(backward_units, 2));
  costs.weight_seconds.assign(shape.global_chunks(), 1);
  return costs;
}

// The items of [0, count) that are shown: all, or as many as `most`, half from each end.
struct Shown {
  int head = 0;  // [0, head)
  int tail = 0;  // [tail, count)
  int left_out() const { return tail - head; }
};
Shown ChooseShown(int count, int most) {
  if (count <= most) return {.head = count, .tail = count};
  return {.head = most - most / 2, .tail = count - most / 2};
}

// One row of cells, idle ones ".".
std::vector<std::string> CellsOfRank(const Replay& replay, const ScheduleShape& shape, int rank, int columns) {
  std::vector<std::string> cells(columns, ".");
  for (const ComputeSpan& span : replay.spans[rank]) {
    const int begin = static_cast<int>(std::lround(span.begin_seconds));
    const int end = static_cast<int>(std::lround(span.end_seconds));
    cells[begin] = Label(shape, span.instruction);
    for (int i = begin + 1; i < end; ++i) cells[i] = "--";
  }
  return cells;
}

// Joins the shown cells, each padded to `width`, without blanks at the end of the line.
std::string JoinCells(const std::vector<std::string>& cells, const Shown& shown, int width) {
  std::string line;
  for (int i = 0; i < std::ssize(cells); ++i) {
    if (i == shown.head && shown.left_out() > 0) {
      absl::StrAppend(&line, "… ");
      i = shown.tail;
    }
    absl::StrAppendFormat(&line, "%-*s ", width, cells[i]);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

absl::Status CheckOptions(const SchedulePrintOptions& options) {
  if (options.backward_units < 1 || options.max_columns < 2 || options.max_ranks < 2) {
    return InvalidArgumentError("drawing a schedule needs backward_units ≥ 1, max_columns ≥ 2 and max_ranks ",
                                "≥ 2; got ", options.backward_units, ", ", options.max_columns, ", ",
                                options.max_ranks);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> DrawSchedule(const std::vector<RankProgram>& programs, const ScheduleShape& shape,
                                         const SchedulePrintOptions& options) {
  HADAL_RETURN_IF_ERROR(CheckOptions(options));
  HADAL_ASSIGN_OR_RETURN(
      const Replay replay,
      ReplaySchedule(programs, shape, Units(programs, shape, options.backward_units),
                     {.outstanding_sends = options.outstanding_sends, .forward_only = options.forward_only}));
  const int columns = static_cast<int>(std::lround(replay.makespan_seconds));
  const Shown shown_columns = ChooseShown(columns, options.max_columns);
  const Shown shown_ranks = ChooseShown(shape.stages, options.max_ranks);
  const Instruction widest = {Operation::kForward, shape.chunks - 1, shape.micro_batches - 1};
  const int width = static_cast<int>(Label(shape, widest).size());
  const int rank_width = static_cast<int>(absl::StrCat(shape.stages - 1).size());
  std::string text;
  for (int rank = 0; rank < shape.stages; ++rank) {
    if (rank == shown_ranks.head && shown_ranks.left_out() > 0) {
      absl::StrAppend(&text, "… ", shown_ranks.left_out(), " ranks left out\n");
      rank = shown_ranks.tail;
    }
    absl::StrAppendFormat(&text, "rank %*d  %s\n", rank_width, rank,
                          JoinCells(CellsOfRank(replay, shape, rank, columns), shown_columns, width));
  }
  if (shown_columns.left_out() > 0) absl::StrAppend(&text, "… ", shown_columns.left_out(), " units of time left out\n");
  absl::StrAppendFormat(&text, "%d units, %.1f%% idle\n", columns, 100 * replay.BubbleFraction());
  return text;
}

}  // namespace hadal
