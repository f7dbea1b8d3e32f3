#include "pipeline/exchange/channel.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

static_assert(sizeof(MessageHeader) <= kMessageHeaderBytes);

MessageHeader HeaderOf(const PackedBatch& batch, int64_t step) {
  return {step, batch.micro_batch, batch.source_rows(), batch.target_rows()};
}

int64_t RowsOf(const ChannelSpec& spec, const Edge& edge, const PackedBatch& batch) {
  return edge.entries_of(spec.gradients) * (edge.rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows());
}

int64_t BytesOf(const ChannelSpec& spec, const PackedBatch& batch) {
  int64_t bytes = kMessageHeaderBytes;
  for (const Edge& edge : spec.edges) {
    bytes += RowsOf(spec, edge, batch) * spec.width * BytesOf(edge.storage_of(spec.gradients));
  }
  return bytes;
}

ArenaSlice ReserveBuffers(const ChannelSpec& spec, ArenaLayout& layout) {
  const int64_t bytes = spec.message_bytes() * spec.buffers;
  return spec.on_device ? layout.ReserveBytes("borders", bytes) : layout.ReserveHostBytes("borders", bytes);
}

// Host memory for the headers of messages on the device.
ArenaSlice ReserveHeaders(const ChannelSpec& spec, ArenaLayout& layout) {
  return layout.ReserveHostBytes("borders", spec.on_device ? kMessageHeaderBytes * spec.buffers : 0);
}

std::string What(const ChannelSpec& spec, int64_t micro_batch) {
  return absl::StrCat(spec.name, ", micro-batch ", micro_batch);
}

absl::Status Unexpected(const ChannelSpec& spec, const MessageHeader& expected, const MessageHeader& sent) {
  return InternalError(What(spec, static_cast<int32_t>(expected.micro_batch)), ": expected step ", expected.step + 1,
                       " with ", expected.source_rows, " source and ", expected.target_rows, " target rows, but rank ",
                       spec.peer, " sent step ", static_cast<uint64_t>(sent.step) + 1, ", micro-batch ",
                       sent.micro_batch, " with ", sent.source_rows, " and ", sent.target_rows,
                       " rows. Start every rank with the same configuration, data and binary.");
}

}  // namespace

int64_t ChannelSpec::message_bytes() const { return MessageBytes(edges, gradients, capacity, width); }

SendChannel::SendChannel(ChannelSpec spec, ArenaLayout& layout)
    : spec_(std::move(spec)), slice_(ReserveBuffers(spec_, layout)), header_slice_(ReserveHeaders(spec_, layout)) {}

void SendChannel::Bind(const Arena& arena, Communicator& communicator) {
  buffers_ = arena.Get<std::byte>(slice_);
  headers_ = arena.Get<std::byte>(header_slice_);
  communicator_ = &communicator;
}

absl::Status SendChannel::WaitOldest(absl::Duration timeout, const std::function<absl::Status()>* meanwhile) {
  Outstanding& oldest = outstanding_.front();
  HADAL_RETURN_IF_ERROR(communicator_->Wait(oldest.request, absl::Now() + timeout, What(spec_, oldest.micro_batch),
                                            /*received_bytes=*/nullptr, meanwhile));
  outstanding_.pop_front();
  return absl::OkStatus();
}

absl::Status SendChannel::Send(const Stream& stream, const PackedBatch& batch, int64_t step,
                               std::span<const ConstAnyMatrix> edges, absl::Duration timeout,
                               const std::function<absl::Status()>* meanwhile) {
  if (static_cast<int>(outstanding_.size()) == spec_.buffers) HADAL_RETURN_IF_ERROR(WaitOldest(timeout, meanwhile));
  const int64_t place = sent_++ % spec_.buffers;
  std::byte* const buffer = buffers_ + place * spec_.message_bytes();
  if (spec_.has_header()) {
    const MessageHeader header = HeaderOf(batch, step);
    std::byte* const header_at = spec_.on_device ? headers_ + place * kMessageHeaderBytes : buffer;
    std::memcpy(header_at, &header, sizeof(header));
    if (spec_.on_device) stream.device()->EnqueueCopyIn(buffer, header_at, kMessageHeaderBytes);
  }
  std::byte* at = buffer + kMessageHeaderBytes;
  HADAL_CHECK_EQ(edges.size(), spec_.edges.size());
  for (size_t i = 0; i < edges.size(); ++i) {
    HADAL_CHECK(edges[i].storage == spec_.edges[i].storage_of(spec_.gradients));
    HADAL_CHECK_EQ(edges[i].rows, RowsOf(spec_, spec_.edges[i], batch));
    const int64_t bytes = edges[i].bytes();
    spec_.on_device ? stream.Copy(at, edges[i].data, bytes) : stream.ToHost(at, edges[i].data, bytes);
    at += bytes;
  }
  HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Send(buffer, at - buffer, spec_.peer, spec_.number));
  outstanding_.push_back({request, batch.micro_batch});
  return absl::OkStatus();
}

absl::StatusOr<bool> SendChannel::HasRoom() {
  if (static_cast<int>(outstanding_.size()) < spec_.buffers) return true;
  HADAL_ASSIGN_OR_RETURN(const bool sent, communicator_->Test(outstanding_.front().request));
  if (sent) outstanding_.pop_front();
  return sent;
}

absl::Status SendChannel::Drain(absl::Duration timeout) {
  while (!outstanding_.empty()) HADAL_RETURN_IF_ERROR(WaitOldest(timeout, /*meanwhile=*/nullptr));
  return absl::OkStatus();
}

ReceiveChannel::ReceiveChannel(ChannelSpec spec, ArenaLayout& layout)
    : spec_(std::move(spec)),
      slice_(ReserveBuffers(spec_, layout)),
      header_slice_(ReserveHeaders(spec_, layout)),
      unchecked_(spec_.buffers) {}

void ReceiveChannel::Bind(const Arena& arena, Communicator& communicator) {
  buffers_ = arena.Get<std::byte>(slice_);
  headers_ = arena.Get<std::byte>(header_slice_);
  communicator_ = &communicator;
}

absl::Status ReceiveChannel::Begin(int64_t messages) {
  HADAL_CHECK_EQ(to_post_, 0);
  to_post_ = messages;
  received_ = 0;
  for (int i = 0; i < spec_.buffers; ++i) HADAL_RETURN_IF_ERROR(Post());
  return absl::OkStatus();
}

absl::Status ReceiveChannel::Post() {
  if (to_post_ == 0) return absl::OkStatus();
  --to_post_;
  std::byte* const buffer = buffers_ + posts_++ % spec_.buffers * spec_.message_bytes();
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         communicator_->Receive(buffer, spec_.message_bytes(), spec_.peer, spec_.number));
  posted_.push_back(request);
  return absl::OkStatus();
}

absl::StatusOr<bool> ReceiveChannel::Poll(std::span<const PackedBatch> batches, TraceBuffer& trace) {
  if (posted_.empty() || arrived_bytes_.has_value()) return arrived_bytes_.has_value();
  int64_t bytes = 0;
  HADAL_ASSIGN_OR_RETURN(const bool arrived, communicator_->Test(posted_.front(), &bytes));
  if (!arrived) return false;
  arrived_bytes_ = bytes;
  const double now = MonotonicSeconds();
  trace.Add({.kind = TraceKind::kArrival,
             .micro_batch = batches[received_].micro_batch,
             .channel = spec_.number,
             .bytes = bytes,
             .begin_seconds = now,
             .end_seconds = now});
  return true;
}

absl::Status ReceiveChannel::Receive(const Stream& stream, const PackedBatch& batch, int64_t step,
                                     absl::Duration timeout, const std::function<absl::Status()>* meanwhile) {
  HADAL_CHECK(!posted_.empty());
  const int64_t position = posts_ - static_cast<int64_t>(posted_.size());  // buffer of the oldest posted receive
  int64_t bytes = 0;
  if (arrived_bytes_.has_value()) {
    bytes = *std::exchange(arrived_bytes_, std::nullopt);
  } else {
    HADAL_RETURN_IF_ERROR(
        communicator_->Wait(posted_.front(), absl::Now() + timeout, What(spec_, batch.micro_batch), &bytes, meanwhile));
  }
  ++received_;
  posted_.pop_front();
  if (!spec_.has_header()) return absl::OkStatus();
  const MessageHeader expected = HeaderOf(batch, step);
  const size_t place = static_cast<size_t>(position % spec_.buffers);
  const std::byte* const buffer = buffers_ + position % spec_.buffers * spec_.message_bytes();
  if (!spec_.on_device || bytes != BytesOf(spec_, batch)) {
    MessageHeader header;
    spec_.on_device ? stream.ToHost(&header, buffer, sizeof(header))
                    : void(std::memcpy(&header, buffer, sizeof(header)));
    const bool as_expected = header == expected && bytes == BytesOf(spec_, batch);
    return as_expected ? absl::OkStatus() : Unexpected(spec_, expected, header);
  }
  // The place's last message was copied before its buffer was free for this one.
  HADAL_RETURN_IF_ERROR(CheckHeader(place));
  stream.EnqueueToHost(headers_ + place * kMessageHeaderBytes, buffer, sizeof(MessageHeader));
  unchecked_[place] = expected;
  return absl::OkStatus();
}

absl::Status ReceiveChannel::CheckHeader(size_t place) {
  const std::optional<MessageHeader> expected = std::exchange(unchecked_[place], std::nullopt);
  if (!expected) return absl::OkStatus();
  MessageHeader header;
  std::memcpy(&header, headers_ + place * kMessageHeaderBytes, sizeof(header));
  return header == *expected ? absl::OkStatus() : Unexpected(spec_, *expected, header);
}

absl::Status ReceiveChannel::CheckHeaders() {
  for (size_t place = 0; place < unchecked_.size(); ++place) HADAL_RETURN_IF_ERROR(CheckHeader(place));
  return absl::OkStatus();
}

EdgeViews ReceiveChannel::Front(const PackedBatch& batch) const {
  EdgeViews edges;
  const std::byte* at = buffers_ + released_ % spec_.buffers * spec_.message_bytes() + kMessageHeaderBytes;
  for (const Edge& edge : spec_.edges) {
    const ConstAnyMatrix view(at, RowsOf(spec_, edge, batch), spec_.width, edge.storage_of(spec_.gradients));
    edges.push_back(view);
    at += view.bytes();
  }
  return edges;
}

absl::Status ReceiveChannel::Release() {
  ++released_;
  return Post();
}

Channels::Channels(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, Purpose purpose,
                   ArenaLayout& layout)
    : chunks_(pipeline.shape.chunks) {
  const ScheduleShape& shape = pipeline.shape;
  for (int c = 0; c < shape.chunks; ++c) {
    // `behind`: the global chunk behind the border.
    const auto spec = [&](Operation operation, int behind) {
      const Channel channel = ChannelOf(shape, rank, {operation, c, 0});
      const bool forward = operation == Operation::kReceiveForward || operation == Operation::kSendForward;
      return ChannelSpec{.number = channel.number,
                         .peer = IsSend(operation) ? channel.receiver : channel.sender,
                         .name = absl::StrCat(forward ? "activations" : "gradients", " of chunk ", c),
                         .edges = EdgesInFrontOf(plan, pipeline, behind),
                         .gradients = !forward,
                         .capacity = pipeline.capacity,
                         .width = plan.options.d_model,
                         .buffers = pipeline.outstanding_sends,
                         .on_device = pipeline.device_transfers,
                         .to_self = channel.sender == channel.receiver};
    };
    OfChunk& channels = chunks_[c];
    if (!shape.IsFirst(rank, c)) {
      const int behind = shape.GlobalChunk(rank, c);
      channels.receive_forward.emplace(spec(Operation::kReceiveForward, behind), layout);
      if (purpose == Purpose::kTraining) channels.send_backward.emplace(spec(Operation::kSendBackward, behind), layout);
    }
    if (!shape.IsLast(rank, c)) {
      const int behind = shape.GlobalChunk(rank, c) + 1;
      channels.send_forward.emplace(spec(Operation::kSendForward, behind), layout);
      if (purpose == Purpose::kTraining)
        channels.receive_backward.emplace(spec(Operation::kReceiveBackward, behind), layout);
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
