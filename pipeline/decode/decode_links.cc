#include "pipeline/decode/decode_links.h"

#include <algorithm>
#include <cstring>

#include "layers/border.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/comm/message_tags.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kHeader = 4;  // kind, lane, count, source rows
constexpr int64_t kRowIntegers = sizeof(StepRow) / sizeof(int32_t);
static_assert(sizeof(StepRow) == 5 * sizeof(int32_t));

bool TakeHypothesis(std::string_view& bytes, Hypothesis& hypothesis) {
  if (!TakeList(bytes, hypothesis.tokens)) return false;
  hypothesis.token_log_probabilities.resize(hypothesis.tokens.size() + 1);
  return TakeValues(bytes, std::span(hypothesis.token_log_probabilities)) &&
         TakeValue(bytes, hypothesis.log_probability) && TakeValue(bytes, hypothesis.score);
}

// Bytes of the longest message of a residual in front of a rank's chunks, or behind them.
int64_t MostBytes(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, bool behind,
                  const DecodeCapacity& capacity) {
  int64_t most = 1;  // entries
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    const int g = pipeline.shape.GlobalChunk(rank, c) + (behind ? 1 : 0);
    if (g == 0 || g == pipeline.shape.global_chunks()) continue;
    for (const Edge& edge : EdgesInFrontOf(plan, pipeline, g)) most = std::max(most, edge.entries_of(false));
  }
  return ArenaLayout::Aligned(most * std::max(capacity.rows, capacity.source_rows) * plan.options.d_model *
                              static_cast<int64_t>(sizeof(float)));
}

}  // namespace

int64_t DecodeCommand::MostIntegers(const DecodeCapacity& capacity) {
  return kHeader + std::max(capacity.sentences + 1 + capacity.source_rows, kRowIntegers * capacity.rows);
}

int64_t DecodeCommand::Write(std::span<int32_t> out) const {
  const bool encode = kind == Kind::kEncode;
  const int64_t count = static_cast<int64_t>(encode ? source_offsets.size() : rows.size());
  const int64_t integers = kHeader + (encode ? count + static_cast<int64_t>(source.size()) : kRowIntegers * count);
  HADAL_CHECK_LE(integers, static_cast<int64_t>(out.size()));
  const int32_t header[kHeader] = {static_cast<int32_t>(kind), lane, static_cast<int32_t>(count),
                                   static_cast<int32_t>(source.size())};
  int32_t* at = std::copy(header, header + kHeader, out.data());
  if (encode) {
    at = std::copy(source_offsets.begin(), source_offsets.end(), at);
    std::copy(source.begin(), source.end(), at);
  } else if (count > 0) {
    std::memcpy(at, rows.data(), count * sizeof(StepRow));
  }
  return integers;
}

absl::Status DecodeCommand::Read(std::span<const int32_t> in) {
  const auto size = static_cast<int64_t>(in.size());
  const bool has_header =
      size >= kHeader && in[0] >= 0 && in[0] <= static_cast<int32_t>(Kind::kEnd) && in[2] >= 0 && in[3] >= 0;
  const int64_t count = has_header ? in[2] : 0;
  const bool encode = has_header && in[0] == static_cast<int32_t>(Kind::kEncode);
  if (!has_header || size != kHeader + (encode ? count + in[3] : kRowIntegers * count)) {
    return InternalError("a decode command of ", size, " integers is damaged; start every rank with the same binary");
  }
  kind = static_cast<Kind>(in[0]);
  lane = in[1];
  const int32_t* const body = in.data() + kHeader;
  source_offsets.clear(), source.clear(), rows.clear();
  if (encode) {
    source_offsets.assign(body, body + count);
    source.assign(body + count, body + count + in[3]);
  } else if (count > 0) {
    rows.resize(count);
    std::memcpy(static_cast<void*>(rows.data()), body, count * sizeof(StepRow));
  }
  return absl::OkStatus();
}

std::string TranslationsToBytes(std::span<const std::vector<Hypothesis>> translations) {
  std::string bytes;
  AppendValue(uint64_t{translations.size()}, bytes);
  for (const std::vector<Hypothesis>& translation : translations) {
    AppendValue(uint64_t{translation.size()}, bytes);
    for (const Hypothesis& hypothesis : translation) {
      AppendList(hypothesis.tokens, bytes);
      bytes += AsBytes(hypothesis.token_log_probabilities);
      AppendValue(hypothesis.log_probability, bytes);
      AppendValue(hypothesis.score, bytes);
    }
  }
  return bytes;
}

absl::StatusOr<std::vector<std::vector<Hypothesis>>> TranslationsFromBytes(std::string_view bytes) {
  size_t count = 0;
  bool whole = TakeCount(bytes, sizeof(uint64_t), count);
  std::vector<std::vector<Hypothesis>> translations(count);
  for (std::vector<Hypothesis>& translation : translations) {
    size_t hypotheses = 0;
    whole = whole && TakeCount(bytes, sizeof(uint64_t), hypotheses);
    translation.resize(hypotheses);
    for (Hypothesis& hypothesis : translation) whole = whole && TakeHypothesis(bytes, hypothesis);
  }
  if (whole && bytes.empty()) return translations;
  return InternalError("translations arrived damaged; start every rank with the same binary");
}

DecodeLinks::DecodeLinks(const ModelPlan& plan, const PipelineLayout& pipeline, int rank,
                         const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout)
    : stream_(stream),
      shape_(pipeline.shape),
      rank_(rank),
      searcher_(pipeline.RankOfSublayer(plan.output_head())),
      // Two commands a lane can be under way: its group's start and its first step. One more for the end.
      command_buffers_(2 * capacity.lanes + 1),
      residual_buffers_(plan.HasSecond(Stack::kEncoder) || plan.HasSecond(Stack::kDecoder) ? 2 * kBuffers : kBuffers),
      command_bytes_(
          ArenaLayout::Aligned(DecodeCommand::MostIntegers(capacity) * static_cast<int64_t>(sizeof(int32_t)))),
      residual_bytes_(MostBytes(plan, pipeline, rank, /*behind=*/true, capacity)),
      command_slice_(layout.ReserveHostBytes("decode borders", command_buffers_ * command_bytes_)),
      residual_slice_(layout.ReserveHostBytes("decode borders", shape_.chunks * residual_buffers_ * residual_bytes_)),
      command_rings_(shape_.stages),
      residual_rings_(shape_.chunks) {
  if (stream.kind() == DeviceKind::kCpu || shape_.stages == 1) return;
  received_bytes_ = MostBytes(plan, pipeline, rank, /*behind=*/false, capacity);
  received_slice_ = layout.ReserveHostBytes("decode borders", received_bytes_);
}

void DecodeLinks::Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout) {
  commands_ = arena.Get<std::byte>(command_slice_);
  residuals_ = arena.Get<std::byte>(residual_slice_);
  if (received_bytes_ > 0) received_ = arena.Get<std::byte>(received_slice_);
  communicator_ = &communicator;
  timeout_ = timeout;
}

absl::Status DecodeLinks::WaitForRoom(Ring& ring, int buffers, std::string_view what) {
  while (static_cast<int>(ring.outstanding.size()) >= buffers) {
    HADAL_RETURN_IF_ERROR(communicator_->Wait(ring.outstanding.front(), absl::Now() + timeout_, what));
    ring.outstanding.pop_front();
  }
  return absl::OkStatus();
}

absl::Status DecodeLinks::Post(Ring& ring, int buffers, const void* data, int64_t bytes, int peer, int tag,
                               std::string_view what) {
  HADAL_RETURN_IF_ERROR(WaitForRoom(ring, buffers, what));
  HADAL_ASSIGN_OR_RETURN(CommRequest request, communicator_->Send(data, bytes, peer, tag));
  ring.outstanding.push_back(request);
  ++ring.sent;
  return absl::OkStatus();
}

absl::Status DecodeLinks::SendCommand(const DecodeCommand& command) {
  if (shape_.stages == 1) return absl::OkStatus();
  constexpr std::string_view kWhat = "a decode command";
  // One copy serves all peers, so room is needed at each of them.
  for (Ring& ring : command_rings_) HADAL_RETURN_IF_ERROR(WaitForRoom(ring, command_buffers_, kWhat));
  const int64_t sent = command_rings_[rank_].sent++;
  std::byte* const buffer = commands_ + sent % command_buffers_ * command_bytes_;
  const int64_t integers =
      command.Write({reinterpret_cast<int32_t*>(buffer), static_cast<size_t>(command_bytes_ / sizeof(int32_t))});
  for (int peer = 0; peer < shape_.stages; ++peer) {
    if (peer == rank_) continue;
    HADAL_RETURN_IF_ERROR(Post(command_rings_[peer], command_buffers_, buffer,
                               integers * static_cast<int64_t>(sizeof(int32_t)), peer, kDecodeCommandTag, kWhat));
  }
  return absl::OkStatus();
}

absl::Status DecodeLinks::ReceiveCommand(DecodeCommand& command) {
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         communicator_->Receive(commands_, command_bytes_, searcher_, kDecodeCommandTag));
  int64_t bytes = 0;
  HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout_, "the next decode command", &bytes));
  return command.Read({reinterpret_cast<const int32_t*>(commands_), static_cast<size_t>(bytes) / sizeof(int32_t)});
}

absl::Status DecodeLinks::SendResidual(int chunk, ConstAnyMatrix residual) {
  const std::string_view what = "the decoder's residual stream";
  const Channel channel = ChannelOf(shape_, rank_, {Operation::kSendForward, chunk, 0});
  Ring& ring = residual_rings_[chunk];
  HADAL_RETURN_IF_ERROR(WaitForRoom(ring, residual_buffers_, what));
  std::byte* const buffer = residuals_ + (chunk * residual_buffers_ + ring.sent % residual_buffers_) * residual_bytes_;
  HADAL_CHECK_LE(residual.bytes(), residual_bytes_);
  stream_.ToHost(buffer, residual.data, residual.bytes());
  return Post(ring, residual_buffers_, buffer, residual.bytes(), channel.receiver, channel.number, what);
}

absl::Status DecodeLinks::ReceiveResidual(int chunk, AnyMatrix residual) {
  const Channel channel = ChannelOf(shape_, rank_, {Operation::kReceiveForward, chunk, 0});
  HADAL_CHECK(received_ == nullptr || residual.bytes() <= received_bytes_);
  void* const place = received_ == nullptr ? static_cast<void*>(residual.data) : received_;
  HADAL_ASSIGN_OR_RETURN(CommRequest request,
                         communicator_->Receive(place, residual.bytes(), channel.sender, channel.number));
  int64_t bytes = 0;
  HADAL_RETURN_IF_ERROR(communicator_->Wait(request, absl::Now() + timeout_, "the decoder's residual stream", &bytes));
  if (bytes == residual.bytes()) {
    if (received_ != nullptr) stream_.FromHost(residual.data, received_, bytes);
    return absl::OkStatus();
  }
  return InternalError("rank ", channel.sender, " sent ", bytes, " bytes of the decoder's residual stream where ",
                       residual.bytes(), " were expected; start every rank with the same binary");
}

absl::Status DecodeLinks::Drain() {
  for (Ring& ring : command_rings_) HADAL_RETURN_IF_ERROR(WaitForRoom(ring, 1, "the last decode commands"));
  for (Ring& ring : residual_rings_) HADAL_RETURN_IF_ERROR(WaitForRoom(ring, 1, "the decoder's last residual streams"));
  return absl::OkStatus();
}

}  // namespace hadal
