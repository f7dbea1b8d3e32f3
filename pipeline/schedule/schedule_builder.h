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
//
// Threads: values. Blocking: none.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "pipeline/schedule/schedule.h"

namespace hadal {

// A micro-batch on one of a rank's chunks.
struct ChunkVisit {
  int chunk = 0;
  int micro_batch = 0;  // may be ≥ M; the builder leaves out such visits
};

// v · (M rounded up to a multiple of S).
int64_t PaddedOrderSize(const ScheduleShape& shape);
// Visit number `index` of the forward and of the backward order.  REQUIRES: 0 ≤ index < PaddedOrderSize(shape).
ChunkVisit ForwardAt(const ScheduleShape& shape, int64_t index);
ChunkVisit BackwardAt(const ScheduleShape& shape, int64_t index);

// Which of a rank's backwards are in halves, and how many weight halves stay pending after an input half and its send:
// the oldest ones beyond that run then, the last ones before the tail. Weight halves change neither the order of the
// other instructions nor what these wait for, so they cause no deadlock.
struct Halves {
  int64_t lag = 0;
  int64_t last_visits = std::numeric_limits<int64_t>::max();  // the rank's backwards before them are whole
};
using OptionalHalves = std::optional<Halves>;  // nothing: all are whole

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

}  // namespace hadal
