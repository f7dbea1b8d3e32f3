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

class ProgramBuilder {
 public:
  ProgramBuilder(const ScheduleShape& shape, int rank) : shape_(shape), rank_(rank) {}

  // receive (unless the visit is on the first global chunk), forward, send (unless on the last).
  void Forward(const ChunkVisit& visit);
  // receive (unless on the last), backward, send (unless on the first).
  void Backward(const ChunkVisit& visit);
  // The end of a training step.
  void Tail();
  RankProgram Finish() && { return std::move(program_); }

 private:
  void Add(Operation operation, const ChunkVisit& visit);

  ScheduleShape shape_;
  int rank_;
  RankProgram program_;
};

}  // namespace hadal
