#include "pipeline/engine/program_executor.h"

#include "gtest/gtest.h"

namespace hadal {
namespace {

constexpr ScheduleShape kShape{.stages = 3, .chunks = 2, .micro_batches = 2};

// The second one's of a replica whose share begins at micro-batch 5.
TraceEvent EventIn(Operation operation) {
  const std::vector<PackedBatch> batches = {{.micro_batch = 5}, {.micro_batch = 6}};
  return EventOf({.operation = operation, .chunk = 1, .micro_batch = 1}, kShape, /*rank=*/1, batches);
}

// Computes and messages have their chunk and their micro-batch of the whole step, the tail kinds alone. Chunk 1 of rank
// 1 is global chunk 4, between the borders 3 and 4.
TEST(InstructionEvent, SaysWhatItIsOf) {
  const struct {
    Operation operation;
    TraceKind kind;
    int channel, chunk = 1, micro_batch = 6;
  } rows[] = {{Operation::kReceiveForward, TraceKind::kReceive, 6},
              {Operation::kForward, TraceKind::kForward, -1},
              {Operation::kSendForward, TraceKind::kSend, 8},
              {Operation::kReceiveBackward, TraceKind::kReceive, 9},
              {Operation::kBackward, TraceKind::kBackward, -1},
              {Operation::kSendBackward, TraceKind::kSend, 7},
              {Operation::kBackwardInput, TraceKind::kBackward, -1},
              {Operation::kBackwardWeight, TraceKind::kBackwardWeight, -1},
              {Operation::kReduceTiedGradients, TraceKind::kTiedGradients, -1, -1, -1},
              {Operation::kReduceOverReplicas, TraceKind::kReduceOverReplicas, -1, -1, -1},
              {Operation::kGlobalNorm, TraceKind::kGlobalNorm, -1, -1, -1},
              {Operation::kOptimizerStep, TraceKind::kOptimizer, -1, -1, -1},
              {Operation::kGatherOverReplicas, TraceKind::kGatherOverReplicas, -1, -1, -1},
              {Operation::kDistributeTiedWeights, TraceKind::kTiedWeights, -1, -1, -1}};
  for (const auto& row : rows) {
    SCOPED_TRACE(ToString(Instruction{.operation = row.operation}));
    const TraceEvent event = EventIn(row.operation);
    EXPECT_EQ(event.kind, row.kind);
    EXPECT_EQ(event.chunk, row.chunk);
    EXPECT_EQ(event.micro_batch, row.micro_batch);
    EXPECT_EQ(event.channel, row.channel);
  }
}

}  // namespace
}  // namespace hadal
