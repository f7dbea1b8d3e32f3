#include "pipeline/schedule/schedule.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "pipeline/schedule/schedule_orders.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr const char* kOperationNames[kOperations] = {
    "receive_forward", "forward",        "send_forward",         "receive_backward",       "backward",
    "send_backward",   "backward_input", "backward_weight",      "reduce_tied_gradients",  "reduce_over_replicas",
    "global_norm",     "optimizer_step", "gather_over_replicas", "distribute_tied_weights"};

struct Schedule {
  ScheduleKind kind;
  const char* name;
  RankProgram (*make)(const ScheduleShape& shape, int rank, const OptionalHalves& halves);
  OptionalHalves (*halves)(const ScheduleShape& shape, int rank);
  bool several_chunks;
  ScheduleKind with_one_pending;
};
OptionalHalves Whole(const ScheduleShape&, int) { return std::nullopt; }
constexpr Schedule kSchedules[] = {
    {ScheduleKind::kGpipe, "gpipe", MakeGpipeSchedule, Whole, true, ScheduleKind::kGpipe},
    {ScheduleKind::k1F1B, "1f1b", Make1F1BSchedule, Whole, false, ScheduleKind::k1F1B},
    {ScheduleKind::kInterleaved1F1B, "interleaved_1f1b", MakeInterleavedSchedule, Whole, true,
     ScheduleKind::kInterleaved1F1B},
    {ScheduleKind::k1F1BSplit, "1f1b_split", Make1F1BSchedule, HalvesOfSplit, false, ScheduleKind::k1F1BSplit},
    {ScheduleKind::kZbH1, "zb_h1", Make1F1BSchedule, HalvesOfZbH1, false, ScheduleKind::k1F1BSplit},
    {ScheduleKind::kInterleavedSplit, "interleaved_split", MakeInterleavedSchedule, HalvesOfSplit, true,
     ScheduleKind::kInterleavedSplit},
    {ScheduleKind::kInterleavedZb, "interleaved_zb", MakeInterleavedSchedule, HalvesOfInterleavedZb, true,
     ScheduleKind::kInterleavedSplit},
};

const Schedule& ScheduleOf(ScheduleKind kind) {
  const auto* found = std::ranges::find(kSchedules, kind, &Schedule::kind);
  HADAL_CHECK(found != std::end(kSchedules));
  return *found;
}

absl::Status CheckShape(const ScheduleShape& shape, int rank) {
  if (shape.stages < 1 || shape.chunks < 1 || shape.micro_batches < 1) {
    return InvalidArgumentError("a schedule needs stages, chunks and micro-batches of at least 1; got ", shape.stages,
                                " stages, ", shape.chunks, " chunks, ", shape.micro_batches, " micro-batches");
  }
  // Channel numbers and positions of a program are ints.
  const int64_t instructions = int64_t{7} * shape.chunks * shape.micro_batches;
  const int64_t global_chunks = int64_t{shape.stages} * shape.chunks;
  constexpr int64_t kLimit = std::numeric_limits<int32_t>::max() / 4;
  if (instructions > kLimit || global_chunks > kLimit) {
    return InvalidArgumentError("the schedule is too large: ", shape.stages, " stages, ", shape.chunks, " chunks, ",
                                shape.micro_batches, " micro-batches (limit: ", kLimit,
                                " instructions a rank); use fewer, larger micro-batches");
  }
  if (rank < 0 || rank >= shape.stages) {
    return InvalidArgumentError("rank ", rank, " is outside the pipeline of ", shape.stages, " stages");
  }
  return absl::OkStatus();
}

template <typename Make>
absl::StatusOr<std::vector<RankProgram>> MakeForAllRanks(const ScheduleShape& shape, const Make& make) {
  HADAL_RETURN_IF_ERROR(CheckShape(shape, 0));
  constexpr int64_t kMostPasses = int64_t{1} << 25;  // of all ranks' programs: some GiB
  const int64_t passes = int64_t{2} * shape.stages * shape.chunks * shape.micro_batches;
  if (passes > kMostPasses) {
    return InvalidArgumentError("the programs of all ranks are too large: ", passes,
                                " forwards and backwards; at most ", kMostPasses,
                                ", use fewer stages, chunks or micro-batches");
  }
  std::vector<RankProgram> programs;
  programs.reserve(shape.stages);
  for (int rank = 0; rank < shape.stages; ++rank) {
    HADAL_ASSIGN_OR_RETURN(RankProgram program, make(rank));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace

const std::vector<ScheduleKind>& AllScheduleKinds() {
  static const auto& all = *[] {
    auto* kinds = new std::vector<ScheduleKind>;
    for (const Schedule& schedule : kSchedules) kinds->push_back(schedule.kind);
    return kinds;
  }();
  return all;
}

std::vector<std::string> AllScheduleNames() {
  std::vector<std::string> names;
  for (const Schedule& schedule : kSchedules) names.emplace_back(schedule.name);
  return names;
}

std::string ToString(ScheduleKind kind) { return ScheduleOf(kind).name; }

absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& text) {
  for (const Schedule& schedule : kSchedules) {
    if (text == schedule.name) return schedule.kind;
  }
  return InvalidArgumentError("there is no schedule \"", text,
                              "\"; use one of: ", absl::StrJoin(AllScheduleNames(), ", "));
}

bool RunsSeveralChunks(ScheduleKind kind) { return ScheduleOf(kind).several_chunks; }

bool SplitsBackward(ScheduleKind kind) { return ScheduleOf(kind).halves != Whole; }

ScheduleKind WithOnePending(ScheduleKind kind) { return ScheduleOf(kind).with_one_pending; }

std::string ToString(const Instruction& instruction) {
  const auto index = static_cast<size_t>(instruction.operation);
  HADAL_CHECK_LT(index, size_t{kOperations});
  if (IsTail(instruction.operation)) return std::string(kOperationNames[index]);
  return absl::StrCat(kOperationNames[index], "(chunk ", instruction.chunk, ", micro-batch ", instruction.micro_batch,
                      ")");
}

Channel ChannelOf(const ScheduleShape& shape, int rank, const Instruction& instruction) {
  const int here = shape.GlobalChunk(rank, instruction.chunk);
  switch (instruction.operation) {
    case Operation::kReceiveForward:
      return {2 * (here - 1), shape.RankOf(here - 1), rank};
    case Operation::kSendForward:
      return {2 * here, rank, shape.RankOf(here + 1)};
    case Operation::kReceiveBackward:
      return {2 * here + 1, shape.RankOf(here + 1), rank};
    case Operation::kSendBackward:
      return {2 * (here - 1) + 1, rank, shape.RankOf(here - 1)};
    default:
      CheckFailed(__FILE__, __LINE__, absl::StrCat(ToString(instruction), " uses no channel"));
  }
}

absl::StatusOr<RankProgram> MakeSchedule(ScheduleKind kind, const ScheduleShape& shape, int rank) {
  HADAL_RETURN_IF_ERROR(CheckShape(shape, rank));
  const Schedule& schedule = ScheduleOf(kind);
  if (shape.chunks != 1 && !schedule.several_chunks) {
    return InvalidArgumentError(schedule.name, " runs one chunk a rank, but ", shape.chunks,
                                " are asked for; use the schedule interleaved_1f1b, or chunks = 1");
  }
  return schedule.make(shape, rank, schedule.halves(shape, rank));
}

absl::StatusOr<std::vector<RankProgram>> MakeSchedules(ScheduleKind kind, const ScheduleShape& shape) {
  return MakeForAllRanks(shape, [&](int rank) { return MakeSchedule(kind, shape, rank); });
}

RankProgram EndGroups(const RankProgram& program, std::span<const int> last) {
  RankProgram result, halves;    // `halves`: weight halves in their order, so far as their input halves have run
  size_t moved = 0, passed = 0;  // weight halves in `result`, and those of `program` so far
  for (const Instruction& instruction : program) {
    if (instruction.operation == Operation::kBackwardWeight && passed++ < moved) continue;
    if (instruction.operation == Operation::kBackwardWeight) ++moved;
    if (instruction.operation == Operation::kBackwardInput) {
      const bool begins = std::ranges::binary_search(last, instruction.micro_batch - 1);
      while (begins &&
             std::ranges::count(std::span(halves).subspan(moved), instruction.chunk, &Instruction::chunk) > 0) {
        result.push_back(halves[moved++]);
      }
      halves.push_back({Operation::kBackwardWeight, instruction.chunk, instruction.micro_batch});
    }
    result.push_back(instruction);
  }
  return result;
}

absl::StatusOr<RankProgram> MakeForwardSchedule(const ScheduleShape& shape, int rank) {
  HADAL_RETURN_IF_ERROR(CheckShape(shape, rank));
  return MakeForwardOrder(shape, rank);
}

absl::StatusOr<std::vector<RankProgram>> MakeForwardSchedules(const ScheduleShape& shape) {
  return MakeForAllRanks(shape, [&](int rank) { return MakeForwardSchedule(shape, rank); });
}

}  // namespace hadal
