#include "pipeline/schedule/schedule_builder.h"

#include "runtime/check.h"

namespace hadal {

int64_t PaddedOrderSize(const ScheduleShape& shape) {
  const int64_t groups = (int64_t{shape.micro_batches} + shape.stages - 1) / shape.stages;
  return groups * shape.stages * shape.chunks;
}

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

}  // namespace hadal
