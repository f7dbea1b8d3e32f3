#include "pipeline/exchange/channels.h"

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {

Channels::Channels(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, Purpose purpose,
                   ArenaLayout& layout)
    : chunks_(pipeline.shape.chunks) {
  const ScheduleShape& shape = pipeline.shape;
  for (int c = 0; c < shape.chunks; ++c) {
    const auto spec = [&](Operation operation, int32_t border) {
      const Channel channel = ChannelOf(shape, rank, {operation, c, 0});
      const bool forward = operation == Operation::kReceiveForward || operation == Operation::kSendForward;
      return ChannelSpec{.number = channel.number,
                         .peer = IsSend(operation) ? channel.receiver : channel.sender,
                         .name = absl::StrCat(forward ? "activations" : "gradients", " of chunk ", c),
                         .edges = BorderEdges(plan, border),
                         .gradients = !forward,
                         .capacity = pipeline.capacity,
                         .width = plan.options.d_model,
                         .buffers = pipeline.outstanding_sends,
                         .on_device = pipeline.device_transfers,
                         .to_self = channel.sender == channel.receiver};
    };
    OfChunk& channels = chunks_[c];
    if (!shape.IsFirst(rank, c)) {
      const int32_t border = pipeline.first_sublayer(rank, c);
      channels.receive_forward.emplace(spec(Operation::kReceiveForward, border), layout);
      if (purpose == Purpose::kTraining) channels.send_backward.emplace(spec(Operation::kSendBackward, border), layout);
    }
    if (!shape.IsLast(rank, c)) {
      const int32_t border = pipeline.last_sublayer(rank, c);
      channels.send_forward.emplace(spec(Operation::kSendForward, border), layout);
      if (purpose == Purpose::kTraining)
        channels.receive_backward.emplace(spec(Operation::kReceiveBackward, border), layout);
    }
  }
}

void Channels::Bind(const Arena& arena, Communicator& communicator) {
  for (OfChunk& chunk : chunks_) {
    if (chunk.receive_forward) chunk.receive_forward->Bind(arena, communicator);
    if (chunk.receive_backward) chunk.receive_backward->Bind(arena, communicator);
    if (chunk.send_forward) chunk.send_forward->Bind(arena, communicator);
    if (chunk.send_backward) chunk.send_backward->Bind(arena, communicator);
  }
}

int64_t Channels::transfers() const {
  int64_t sum = 0;
  for (const OfChunk& chunk : chunks_) {
    for (const std::optional<ReceiveChannel>* channel : {&chunk.receive_forward, &chunk.receive_backward}) {
      if (*channel) sum += (*channel)->buffers();
    }
    for (const std::optional<SendChannel>* channel : {&chunk.send_forward, &chunk.send_backward}) {
      if (*channel) sum += (*channel)->buffers();
    }
  }
  return sum;
}

absl::Status Channels::Begin(const RankProgram& program) {
  for (size_t c = 0; c < chunks_.size(); ++c) {
    int64_t forward = 0, backward = 0;
    for (const Instruction& instruction : program) {
      if (instruction.chunk != static_cast<int32_t>(c)) continue;
      forward += instruction.operation == Operation::kReceiveForward;
      backward += instruction.operation == Operation::kReceiveBackward;
    }
    if (forward > 0) HADAL_RETURN_IF_ERROR(chunks_[c].receive_forward->Begin(forward));
    if (backward > 0) HADAL_RETURN_IF_ERROR(chunks_[c].receive_backward->Begin(backward));
  }
  return absl::OkStatus();
}

absl::Status Channels::Poll(std::span<const PackedBatch> batches, TraceBuffer& trace) {
  for (OfChunk& chunk : chunks_) {
    if (chunk.receive_forward) HADAL_RETURN_IF_ERROR(chunk.receive_forward->Poll(batches, trace).status());
    if (chunk.receive_backward) HADAL_RETURN_IF_ERROR(chunk.receive_backward->Poll(batches, trace).status());
  }
  return absl::OkStatus();
}

absl::Status Channels::Drain(absl::Duration timeout) {
  for (OfChunk& chunk : chunks_) {
    if (chunk.send_forward) HADAL_RETURN_IF_ERROR(chunk.send_forward->Drain(timeout));
    if (chunk.send_backward) HADAL_RETURN_IF_ERROR(chunk.send_backward->Drain(timeout));
  }
  return absl::OkStatus();
}

absl::Status Channels::CheckHeaders() {
  for (OfChunk& chunk : chunks_) {
    if (chunk.receive_forward) HADAL_RETURN_IF_ERROR(chunk.receive_forward->CheckHeaders());
    if (chunk.receive_backward) HADAL_RETURN_IF_ERROR(chunk.receive_backward->CheckHeaders());
  }
  return absl::OkStatus();
}

}  // namespace hadal
