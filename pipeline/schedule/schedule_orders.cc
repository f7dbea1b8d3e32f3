// What schedules are built from: the order in which a rank visits its (chunk, micro-batch) pairs, and a builder that
// puts each compute between its receive and its send.
//
// The order (Narayanan et al. 2021, arXiv 2104.04473, section 2.2): micro-batches form groups of S. A group passes
// chunk 0, then chunk 1, … of a rank before the next group starts, because a group's first micro-batch returns to rank
// 0 for chunk 1 just when its last one has left chunk 0. Backward visits the chunks in descending order, groups and
// micro-batches still ascending.
//
// If the micro-batches do not fill the last group, the order is made for M rounded up to a multiple of S, and visits
// beyond M are left out. That is safe: what the instructions wait for forms a graph without cycles. Leaving out the
// last micro-batches removes nodes and adds no edge (message i of a channel waits only for messages before i). So there
// is still no cycle, the order is still ascending, and a rank never holds more than under the rounded-up M.
// Threads: values. Blocking: none.
#include "pipeline/schedule/schedule_orders.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "runtime/check.h"

namespace hadal {
namespace {

// A micro-batch on one of a rank's chunks.
struct ChunkVisit {
  int chunk = 0;
  int micro_batch = 0;  // may be ≥ M; the builder leaves out such visits
};

class ProgramBuilder {
 public:
  // REQUIRES: no lag above 0 on the first rank, whose first chunk's backward is whole (schedule.h).
  ProgramBuilder(const ScheduleShape& shape, int rank, const OptionalHalves& halves = {})
      : shape_(shape),
        rank_(rank),
        halves_(halves.value_or(Halves{.last_visits = 0})),
        backwards_left_(int64_t{shape.chunks} * shape.micro_batches) {}

  // receive (unless the visit is on the first global chunk), forward, send (unless on the last).
  void Forward(const ChunkVisit& visit);
  // receive (unless on the last), backward or its input half, send (unless on the first), weight halves.
  void Backward(const ChunkVisit& visit);
  // The end of a training step.
  void Tail();
  RankProgram Finish() && { return std::move(program_); }

 private:
  void Add(Operation operation, const ChunkVisit& visit);
  // Runs the oldest pending weight halves until `most` are left.
  void RunWeightHalves(int64_t most);

  ScheduleShape shape_;
  int rank_;
  Halves halves_;
  int64_t backwards_left_;
  std::deque<ChunkVisit> pending_;
  RankProgram program_;
};

// v · (M rounded up to a multiple of S).
int64_t PaddedOrderSize(const ScheduleShape& shape) {
  const int64_t groups = (int64_t{shape.micro_batches} + shape.stages - 1) / shape.stages;
  return groups * shape.stages * shape.chunks;
}

// The forwards that a rank runs before it alternates between forward and backward, with several chunks.
int64_t WarmUpVisits(const ScheduleShape& shape, int rank) {
  return 2 * (int64_t{shape.stages} - 1 - rank) + (int64_t{shape.chunks} - 1) * shape.stages;
}

// Visit number `index` of the forward order, and below of the backward order.  REQUIRES: 0 ≤ index <
// PaddedOrderSize(shape).
ChunkVisit ForwardAt(const ScheduleShape& shape, int64_t index) {
  const int64_t group_size = shape.global_chunks();  // S micro-batches on v chunks
  const int64_t group = index / group_size;
  const int64_t within = index % group_size;
  return {.chunk = static_cast<int>(within / shape.stages),
          .micro_batch = static_cast<int>(group * shape.stages + within % shape.stages)};
}

ChunkVisit BackwardAt(const ScheduleShape& shape, int64_t index) {
  ChunkVisit visit = ForwardAt(shape, index);
  visit.chunk = shape.chunks - 1 - visit.chunk;
  return visit;
}

void ProgramBuilder::Forward(const ChunkVisit& visit) {
  if (visit.micro_batch >= shape_.micro_batches) return;
  if (!shape_.IsFirst(rank_, visit.chunk)) Add(Operation::kReceiveForward, visit);
  Add(Operation::kForward, visit);
  if (!shape_.IsLast(rank_, visit.chunk)) Add(Operation::kSendForward, visit);
}

void ProgramBuilder::Backward(const ChunkVisit& visit) {
  if (visit.micro_batch >= shape_.micro_batches) return;
  if (!shape_.IsLast(rank_, visit.chunk)) Add(Operation::kReceiveBackward, visit);
  const bool sends = !shape_.IsFirst(rank_, visit.chunk);
  const bool whole = backwards_left_-- > halves_.last_visits || !sends;
  HADAL_CHECK(!whole || pending_.empty());
  Add(whole ? Operation::kBackward : Operation::kBackwardInput, visit);
  if (sends) Add(Operation::kSendBackward, visit);
  if (whole) return;
  pending_.push_back(visit);
  RunWeightHalves(halves_.lag);
}

void ProgramBuilder::RunWeightHalves(int64_t most) {
  while (std::ssize(pending_) > most) {
    Add(Operation::kBackwardWeight, pending_.front());
    pending_.pop_front();
  }
}

void ProgramBuilder::Tail() {
  RunWeightHalves(0);
  for (int i = 0; i < kTailOperations; ++i) {
    const int first = static_cast<int>(Operation::kReduceTiedGradients);
    program_.push_back({.operation = static_cast<Operation>(first + i)});
  }
}

void ProgramBuilder::Add(Operation operation, const ChunkVisit& visit) {
  program_.push_back({.operation = operation, .chunk = visit.chunk, .micro_batch = visit.micro_batch});
}

}  // namespace

RankProgram MakeForwardOrder(const ScheduleShape& shape, int rank) {
  ProgramBuilder builder(shape, rank);
  for (int64_t i = 0; i < PaddedOrderSize(shape); ++i) builder.Forward(ForwardAt(shape, i));
  return std::move(builder).Finish();
}

// 1F1B with a flush (Narayanan et al. 2021, "Memory-efficient pipeline-parallel DNN training", section 2.2): a rank
// runs just enough forwards to keep the ranks below it busy, then alternates. Here the computations are listed; the
// builder puts each between its receive and its send. S = 2, M = 3, backward twice as long:
//
//   rank 0  F0 F1 .  .  B0 -- F2 B1 -- .  B2 --
//   rank 1  .  F0 B0 -- F1 B1 -- F2 B2 -- .  .
//
// Idle share of the step with equal stages: (S-1)/(M + S-1), as GPipe's. Memory: min(M, S - rank) live micro-batches.
//
// Sends: a rank sends forward and then receives backward while its neighbour sends backward and then receives forward.
// Were sends to block until received, both would wait for each other (for every S ≥ 2, M ≥ 2). With one outstanding
// send a channel they do not: send i only waits for receive i - 1, which the neighbour reaches before anything that
// needs send i.
RankProgram Make1F1BSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  HADAL_CHECK_EQ(shape.chunks, 1);
  const int micro_batches = shape.micro_batches;
  const int warm_up = std::min(micro_batches, shape.stages - 1 - rank);
  ProgramBuilder builder(shape, rank, halves);
  for (int i = 0; i < warm_up; ++i) builder.Forward({.micro_batch = i});
  for (int i = warm_up; i < micro_batches; ++i) {
    builder.Forward({.micro_batch = i});
    builder.Backward({.micro_batch = i - warm_up});
  }
  for (int i = micro_batches - warm_up; i < micro_batches; ++i) builder.Backward({.micro_batch = i});
  builder.Tail();
  return std::move(builder).Finish();
}

// GPipe (Huang et al. 2019, section 2.2): all micro-batches forward, then all backward. S = 2, M = 3, backward twice as
// long:
//
//   rank 0  F0 F1 F2 .  .  .  B0 -- B1 -- B2 --
//   rank 1  .  F0 F1 F2 B0 -- B1 -- B2 -- .  .
//
// Backward runs in ascending order like every schedule here (the paper's picture runs it in descending order; time and
// memory are the same). Idle share of the step with equal stages: (S-1)/(v·M + S-1). Memory: all M micro-batches live
// on every chunk.
//
// No deadlock with one outstanding send: while ranks run forward, data only flows to higher (chunk, micro-batch) visits
// in an order all ranks share; a send waits for a receive that comes earlier in that order. The same holds backward,
// and no forward waits for a backward.
RankProgram MakeGpipeSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  ProgramBuilder builder(shape, rank, halves);
  const int64_t visits = PaddedOrderSize(shape);
  for (int64_t i = 0; i < visits; ++i) builder.Forward(ForwardAt(shape, i));
  for (int64_t i = 0; i < visits; ++i) builder.Backward(BackwardAt(shape, i));
  builder.Tail();
  return std::move(builder).Finish();
}

// Interleaved 1F1B (Narayanan et al. 2021, arXiv 2104.04473, section 2.2): each rank holds v chunks of the depth, so
// that the pipeline fills after one chunk's time instead of one stage's. Visits run in the order described above.
// A rank runs
//   warm_up = 2·(S-1-rank) + (v-1)·S
// forward visits, then alternates one forward and one backward visit. (v-1)·S takes the first group to the last chunk;
// the rest covers the way down to the last rank and back. S = 2, v = 2 (chunks a, b), M = 2, backward twice as long:
//
//   rank 0  F0a F1a F0b F1b .   .   B0b --  .   B1b --  B0a --  B1a --
//   rank 1  .   F0a F1a F0b B0b --  F1b B1b --  B0a --  B1a --  .   .
//
// Idle share of the step with equal chunks, S | M: (S-1)/(v·M + S-1). Memory: at most warm_up + 1 live (chunk,
// micro-batch) pairs on a rank, all chunks together; for M not a multiple of S never more than for M rounded up.
// With one chunk this is 1F1B: nothing returns to rank 0, so the longer warm-up would cost memory
// and gain no time.
RankProgram MakeInterleavedSchedule(const ScheduleShape& shape, int rank, const OptionalHalves& halves) {
  if (shape.chunks == 1) return Make1F1BSchedule(shape, rank, halves);
  const int64_t visits = PaddedOrderSize(shape);
  const int64_t warm_up = std::min(visits, WarmUpVisits(shape, rank));
  ProgramBuilder builder(shape, rank, halves);
  for (int64_t i = 0; i < warm_up; ++i) builder.Forward(ForwardAt(shape, i));
  for (int64_t i = warm_up; i < visits; ++i) {
    builder.Forward(ForwardAt(shape, i));
    builder.Backward(BackwardAt(shape, i - warm_up));
  }
  for (int64_t i = visits - warm_up; i < visits; ++i) builder.Backward(BackwardAt(shape, i));
  builder.Tail();
  return std::move(builder).Finish();
}

// Schedules whose weight halves follow the sends of their input halves: 1f1b_split and interleaved_split.
//
// What an early send gains: on a link, its own time, for every micro-batch. Where links are free, the steady state
// gains nothing: a rank is as early as its busiest neighbour. Only on the way back at a step's end each rank's input
// halves are on the longest path, one after another. So the last visits of rank r are split:
//   S·v - r              with one chunk, or if S divides M; none on the first rank, which ends the step and waits for
//                        no one then (of one chunk its backwards are whole anyway)
//   + (v-1)·(M mod S)    else: the last group is not full, and its visits are part of the way back
// Replays with these and with all backwards split take the same time if ranks take equal time and a weight half takes
// no longer than a forward (schedule_orders_test); with unequal ranks they lie between whole and split backwards. What
// it saves: a whole backward's gradients stay in a cache, those of a weight half are written to memory and read again.
OptionalHalves HalvesOfSplit(const ScheduleShape& shape, int rank) {
  if (!shape.free_links) return Halves();
  const int64_t rest = shape.micro_batches % shape.stages;
  if (rank == 0 && rest == 0) return Halves{.last_visits = 0};
  return Halves{.last_visits = shape.global_chunks() - rank + (shape.chunks - 1) * rest};
}

// Schedules that keep weight halves back for time that would be idle. A weight half sends nothing, so no rank waits for
// it. It may run when its rank has nothing else to do: at a step's end, while the gradients of the last micro-batches
// are still on their way from the ranks below.
//
// zb_h1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", arXiv 2401.10241, section 3): 1F1B, and rank r runs the
// weight half of micro-batch k right after the input half of k + r. S = 2, M = 3, equal forwards and halves (I, W), the
// first stage's backward whole:
//
//   rank 0  F0 F1 .  B0 -- F2 B1 -- B2 --
//   rank 1  .  F0 I0 F1 I1 W0 F2 I2 W1 W2
//
// Idle time of a rank, for one micro-batch's forward F, input half I and weight half W: (S-1)·(F + I - W), where 1F1B
// has (S-1)·(F + I + W). Memory: as on 1F1B's first rank, min(M, S) live micro-batches; r + 1 pending weight halves.
//
// interleaved_zb (ours): the same over v chunks a rank. A rank that still alternates forwards and backwards when its
// weight halves begin to wait may keep 2r back: its warm-up is 2r visits shorter than the first rank's, so this takes
// the first rank's number of live visits. With few micro-batches only the way back idles, and r is enough. Never more
// than the weight halves of two micro-batches of the stage, 2v, are pending.
OptionalHalves HalvesOfZbH1(const ScheduleShape& /*shape*/, int rank) { return Halves{.lag = rank}; }

OptionalHalves HalvesOfInterleavedZb(const ScheduleShape& shape, int rank) {
  if (shape.chunks == 1) return HalvesOfZbH1(shape, rank);
  const int64_t alternating = PaddedOrderSize(shape) - WarmUpVisits(shape, rank);
  const int64_t wanted = std::min(int64_t{2} * rank, std::max(int64_t{rank}, alternating));
  return Halves{.lag = std::min(wanted, int64_t{2} * shape.chunks - 1)};
}

}  // namespace hadal
