#include "pipeline/schedule/instruction_event.h"

namespace hadal {
namespace {

TraceKind KindOf(Operation operation) {
  switch (operation) {
    case Operation::kReceiveForward:
    case Operation::kReceiveBackward:
      return TraceKind::kReceive;
    case Operation::kForward:
      return TraceKind::kForward;
    case Operation::kSendForward:
    case Operation::kSendBackward:
      return TraceKind::kSend;
    case Operation::kBackward:
    case Operation::kBackwardInput:
      return TraceKind::kBackward;
    case Operation::kBackwardWeight:
      return TraceKind::kBackwardWeight;
    case Operation::kReduceTiedGradients:
      return TraceKind::kTiedGradients;
    case Operation::kReduceOverReplicas:
      return TraceKind::kReduceOverReplicas;
    case Operation::kGlobalNorm:
      return TraceKind::kGlobalNorm;
    case Operation::kOptimizerStep:
      return TraceKind::kOptimizer;
    case Operation::kGatherOverReplicas:
      return TraceKind::kGatherOverReplicas;
    case Operation::kDistributeTiedWeights:
      return TraceKind::kTiedWeights;
  }
  return TraceKind::kStep;
}

}  // namespace

TraceEvent EventOf(const Instruction& instruction, const ScheduleShape& shape, int rank,
                   std::span<const PackedBatch> batches) {
  TraceEvent event{.kind = KindOf(instruction.operation)};
  if (!IsTail(instruction.operation)) {
    event.chunk = instruction.chunk;
    event.micro_batch = batches[instruction.micro_batch].micro_batch;
  }
  if (IsSend(instruction.operation) || IsReceive(instruction.operation)) {
    event.channel = ChannelOf(shape, rank, instruction).number;
  }
  return event;
}

}  // namespace hadal
