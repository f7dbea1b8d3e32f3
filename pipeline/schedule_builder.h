// What the schedules are written with: the order in which a rank visits its (chunk, micro-batch) pairs, and a builder
// that puts each compute between its receive and its send.
//
// The order (Narayanan et al. 2021, arXiv 2104.04473, section 2.2): micro-batches come in groups of S; a group passes
// chunk 0, then chunk 1, … of a rank before the next group starts, because the first micro-batch of a group returns to
// rank 0 for chunk 1 just when the last has left chunk 0. Backward takes the chunks in descending order, groups and
// micro-batches still ascending.
//
// Micro-batches that fill no group: the order is made for M rounded up to a multiple of S and those beyond M are left
// out. That is sound: what a schedule waits for forms a graph without cycles; leaving out the last micro-batches
// removes nodes and adds no edge (message i of a channel waits for messages before i only), so no cycle appears, the
// order stays ascending, and a rank never holds more than under the rounded-up M.
//
// Threads: values. Blocking: none.
#pragma once

#include <cstdint>
#include <utility>

#include "pipeline/schedule.h"

namespace hadal {

// A micro-batch on one of a rank's chunks.
struct ChunkVisit {
  int chunk = 0;
  int micro_batch = 0;  // may be ≥ M: the builder leaves such visits out
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
