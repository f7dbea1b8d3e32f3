// A schedule is data: for each rank its program, the list of instructions that make up one step.
//
// What: MakeSchedule is a pure function of (kind, shape, rank). One loop with one switch executes the list
// (program_executor.h), the checker proves it free of deadlock before the first step (schedule_check.h), the planner
// replays it with costs (schedule_replay.h) and `hadal schedule print` draws it (schedule_print.h).
// Why: a schedule that is written as code cannot be checked, timed or drawn without running it.
//
// The model's depth is cut into stages·chunks global chunks. Global chunk g = chunk·stages + rank, so the depth passes
// through the ranks `chunks` times. Every border between g and g + 1 has two channels: forward (activations, g → g + 1)
// and backward (gradients, g + 1 → g). Both ends may be on the same rank (one stage). The first global chunk receives
// nothing forward and sends nothing backward; the last sends nothing forward and receives nothing backward.
//
// Rules of every schedule (schedule_check.h checks them):
//   · a chunk runs forward, and runs backward, in ascending micro-batch order. Weight gradients then add up in the same
//     order under every schedule, so every schedule gives the same bits;
//   · a backward is whole, or in two halves: an input half, which computes the gradient of the chunk's input, and a
//     weight half, which computes the gradients of its weights. The weight halves of a rank run in the order of its
//     input halves, and all have ended before a whole backward begins. The first global chunk's backwards are whole: it
//     sends nothing;
//   · an output is sent before its chunk's next compute in the same direction; an input is received before it is used;
//   · no deadlock when a send completes only once its receive is reached and one send per channel may be outstanding.
// Every shape with stages, chunks, micro_batches ≥ 1 is legal, also with fewer micro-batches than stages.
//
// Shape legend: S stages (ranks of the pipeline), v chunks per rank, M micro-batches per step, G = S·v global chunks.
// Threads: all functions are pure. Blocking: none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

enum class ScheduleKind {
  kGpipe,  // "gpipe": all forwards, then all backwards (Huang et al. 2019, "GPipe", section 2.2)
  k1F1B,   // "1f1b": one forward, one backward (Narayanan et al. 2021, "PipeDream-2BW", section 2.2, with a flush)
  kInterleaved1F1B,  // "interleaved_1f1b": 1F1B over several chunks a rank (Narayanan et al. 2021, arXiv 2104.04473)
  // Backward in two halves: the gradient of the input is sent before the gradients of the weights are computed. The
  // weight half comes right after the send ("1f1b_split", "interleaved_split"), or some micro-batches later
  // (schedule_orders.cc): "zb_h1" (Qi et al. 2023, arXiv 2401.10241, section 3), "interleaved_zb". With
  // ScheduleShape::free_links, "1f1b_split" and "interleaved_split" split only a rank's last backwards.
  k1F1BSplit,
  kZbH1,
  kInterleavedSplit,
  kInterleavedZb,
};
const std::vector<ScheduleKind>& AllScheduleKinds();
std::vector<std::string> AllScheduleNames();

std::string ToString(ScheduleKind kind);
// Errors: InvalidArgument; the message lists the valid names.
absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& text);
// Whether the schedule can run several chunks a rank.
bool RunsSeveralChunks(ScheduleKind kind);
// Whether the schedule splits backwards into halves (all but those of the first global chunk and, with free links, the
// early ones).
bool SplitsBackward(ScheduleKind kind);
// Returns the kind with the same order but at most one pending weight half per rank, as recomputation requires; `kind`
// itself if it already has no more.
ScheduleKind WithOnePending(ScheduleKind kind);

struct ScheduleShape {
  int stages = 1;           // S: ranks of the pipeline
  int chunks = 1;           // v: chunks per rank
  int micro_batches = 1;    // M
  bool free_links = false;  // assume that messages take no time, as between CPUs, whose compute is slow

  int global_chunks() const { return stages * chunks; }
  int GlobalChunk(int rank, int chunk) const { return chunk * stages + rank; }
  int RankOf(int global_chunk) const { return global_chunk % stages; }
  int ChunkOf(int global_chunk) const { return global_chunk / stages; }
  bool IsFirst(int rank, int chunk) const { return GlobalChunk(rank, chunk) == 0; }
  bool IsLast(int rank, int chunk) const { return GlobalChunk(rank, chunk) == global_chunks() - 1; }
};

// kBackward means backward_input and backward_weight in a row. A weight half is *pending* from its input half to its
// own end.
enum class Operation : int32_t {
  kReceiveForward,  // the input of (chunk, micro-batch), from global chunk g - 1
  kForward,
  kSendForward,      // its output, to g + 1
  kReceiveBackward,  // the gradient of its output, from g + 1
  kBackward,
  kSendBackward,    // the gradient of its input, to g - 1
  kBackwardInput,   // the half that computes the gradient of the chunk's input
  kBackwardWeight,  // the half that computes the gradients of the weights
  // The tail of a step: executed once on every rank, in this order; no chunk, no micro-batch.
  kReduceTiedGradients,  // sums the gradients of a matrix used on several stages
  kReduceOverReplicas,   // sums the gradients of all replicas of this stage
  kGlobalNorm,
  kOptimizerStep,
  kGatherOverReplicas,     // gives every replica the weights that the others updated
  kDistributeTiedWeights,  // sends an updated tied matrix to the stages that use it
};
inline constexpr int kOperations = 14;
inline constexpr int kTailOperations = 6;

struct Instruction {
  Operation operation = Operation::kForward;
  int32_t chunk = 0;        // of this rank, 0 … v-1
  int32_t micro_batch = 0;  // 0 … M-1

  bool operator==(const Instruction&) const = default;
};

// "send_forward(chunk 0, micro-batch 3)"; tail operations have no arguments.
std::string ToString(const Instruction& instruction);
inline bool IsTail(Operation operation) { return operation >= Operation::kReduceTiedGradients; }
// Whether the operation is the last one that adds a micro-batch's gradients of the chunk's weights.
inline bool EndsBackward(Operation operation) {
  return operation == Operation::kBackward || operation == Operation::kBackwardWeight;
}
inline bool IsSend(Operation operation) {
  return operation == Operation::kSendForward || operation == Operation::kSendBackward;
}
inline bool IsReceive(Operation operation) {
  return operation == Operation::kReceiveForward || operation == Operation::kReceiveBackward;
}

// A channel is one direction of one border: number 2·border + (0 forward, 1 backward), where border g is between global
// chunks g and g + 1. Message i of a channel is micro-batch i. There are 2·(G - 1) channels; the number is also the
// message tag.
struct Channel {
  int number = 0;
  int sender = 0;    // rank
  int receiver = 0;  // rank
};
inline int NumberOfChannels(const ScheduleShape& shape) { return 2 * (shape.global_chunks() - 1); }
// The channel of a send or receive instruction of `rank`.  REQUIRES: IsSend or IsReceive, and the border exists.
Channel ChannelOf(const ScheduleShape& shape, int rank, const Instruction& instruction);

using RankProgram = std::vector<Instruction>;

// One rank's program of a training step, tail included. O(its length).
// Errors: InvalidArgument: a number below 1, a rank outside the stages, several chunks where the schedule runs one, or
// too many instructions or chunks for 32-bit numbers.
absl::StatusOr<RankProgram> MakeSchedule(ScheduleKind kind, const ScheduleShape& shape, int rank);
// Every rank's program: [S].
absl::StatusOr<std::vector<RankProgram>> MakeSchedules(ScheduleKind kind, const ScheduleShape& shape);

// Returns the program with weight halves moved to earlier places. `last`: the last micro-batch of each group
// (layout/sum_tree.h), ascending. All weight halves of a chunk's group run before the chunk's first input half of the
// next group. Weight halves keep their order among each other, and so do all other instructions.
RankProgram EndGroups(const RankProgram& program, std::span<const int> last);

// One rank's forward-only program, for validation and scoring: receive, forward, send; no tail.
// Errors: as MakeSchedule.
absl::StatusOr<RankProgram> MakeForwardSchedule(const ScheduleShape& shape, int rank);
absl::StatusOr<std::vector<RankProgram>> MakeForwardSchedules(const ScheduleShape& shape);

}  // namespace hadal
