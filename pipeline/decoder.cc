#include "pipeline/decoder.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "pipeline/decode_driver.h"
#include "pipeline/translation_bytes.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool OnDevice(const Stream& stream) { return stream.kind() != DeviceKind::kCpu; }

}  // namespace

Decoder::Decoder(const ModelPlan& plan, const PipelinePlan& pipeline, const ParameterStore& parameters,
                 const Stream& stream, Communicator& communicator, const DecoderOptions& options,
                 const DecodeCapacity& capacity, absl::Duration timeout)
    : plan_(plan),
      parameters_(parameters),
      stream_(stream),
      communicator_(communicator),
      collectives_(communicator, timeout),
      beam_(options.beam),
      capacity_(capacity),
      timeout_(timeout),
      buffers_(plan, capacity, stream, layout_),
      links_(plan, pipeline, communicator.rank(), capacity, stream, layout_),
      lanes_(capacity.lanes, DecodeLane(capacity, OnDevice(stream))),
      progress_([this] { communicator_.Progress(); }) {
  const int rank = communicator.rank();
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    chunks_.push_back(
        std::make_unique<DecoderChunk>(plan, pipeline.first_sublayer(rank, c), pipeline.last_sublayer(rank, c),
                                       capacity, CandidatesPerHypothesis(options.beam), buffers_,
                                       DecoderChunk::Launching{OnDevice(stream), options.graphs}, layout_));
  }
  if (OnDevice(stream)) blocks_.emplace(capacity, layout_);
  buffers_.ReserveRequired(layout_);
}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelPlan& plan, const PipelinePlan& pipeline,
                                                         const ParameterStore& parameters, const Stream& stream,
                                                         Communicator& communicator, const DecoderOptions& options,
                                                         absl::Duration timeout) {
  if (!plan.options.has_encoder()) {
    return absl::InvalidArgumentError(
        "the model is a language model (encoder_layers = 0) and cannot translate; `hadal score --target FILE` says how "
        "probable it finds text");
  }
  HADAL_ASSIGN_OR_RETURN(const DecodeCapacity capacity, PlanDecodeCapacity(plan, pipeline, options));
  std::unique_ptr<Decoder> decoder(
      new Decoder(plan, pipeline, parameters, stream, communicator, options, capacity, timeout));
  absl::StatusOr<Arena> arena = Arena::Allocate(decoder->layout_, stream.device());
  HADAL_RETURN_IF_ERROR(decoder->collectives_.AllOk(arena.status(), "allocating memory for translation"));
  decoder->arena_ = *std::move(arena);
  decoder->buffers_.Bind(decoder->arena_);
  decoder->links_.Bind(decoder->arena_, communicator, timeout);
  for (std::unique_ptr<DecoderChunk>& chunk : decoder->chunks_) chunk->Bind(decoder->arena_);
  if (decoder->blocks_) decoder->blocks_->Bind(decoder->arena_);
  return decoder;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> Decoder::WithEnds(
    std::span<const std::vector<int32_t>> sources) const {
  std::vector<std::vector<int32_t>> ended(sources.begin(), sources.end());
  for (size_t s = 0; s < ended.size(); ++s) {
    const auto tokens = static_cast<int64_t>(ended[s].size());
    if (tokens < 1 || tokens > longest_source_tokens()) {
      return absl::InvalidArgumentError(absl::StrCat("source ", s + 1, " has ", tokens, " tokens; 1 … ",
                                                     longest_source_tokens(), " can be translated"));
    }
    ended[s].push_back(kEosToken);
  }
  return ended;
}

absl::StatusOr<std::vector<Translation>> Decoder::Translate(std::span<const std::vector<int32_t>> sources,
                                                            int64_t update) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<int32_t>> ended, WithEnds(sources));
  update_ = std::max<int64_t>(update, 1);
  for (const std::unique_ptr<DecoderChunk>& chunk : chunks_) chunk->SetUpdate(stream_, update_);
  std::vector<Translation> translations(sources.size());
  const bool searches = communicator_.rank() == links_.searcher();
  HADAL_RETURN_IF_ERROR(searches ? Search(ended, translations) : Follow());
  HADAL_RETURN_IF_ERROR(links_.Drain());
  if (communicator_.size() == 1) return translations;
  std::string bytes = searches ? TranslationsToBytes(translations) : "";
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(bytes, links_.searcher(), "translations"));
  return searches ? std::move(translations) : TranslationsFromBytes(bytes);
}

absl::Status Decoder::Search(std::span<const std::vector<int32_t>> sources, std::vector<Translation>& translations) {
  DecodeDriver driver(capacity_, beam_, plan_.options.max_positions, sources, translations);
  std::deque<DecodeCommand> under_way;
  const auto give = [&](std::vector<DecodeCommand> commands) -> absl::Status {
    for (DecodeCommand& command : commands) {
      HADAL_RETURN_IF_ERROR(links_.SendCommand(command));
      under_way.push_back(std::move(command));
    }
    return absl::OkStatus();
  };
  for (int32_t lane = 0; lane < capacity_.lanes; ++lane) HADAL_RETURN_IF_ERROR(give(driver.Next(lane)));
  while (!under_way.empty()) {
    const DecodeCommand command = std::move(under_way.front());
    under_way.pop_front();
    HADAL_RETURN_IF_ERROR(Execute(command));
    if (command.kind != DecodeCommand::Kind::kStep) continue;
    driver.Advance(command.lane, *chunks_.back()->candidates());
    HADAL_RETURN_IF_ERROR(give(driver.Next(command.lane)));
  }
  return links_.SendCommand({.kind = DecodeCommand::Kind::kEnd});
}

absl::Status Decoder::Follow() {
  DecodeCommand command;
  while (true) {
    HADAL_RETURN_IF_ERROR(links_.ReceiveCommand(command));
    if (command.kind == DecodeCommand::Kind::kEnd) return absl::OkStatus();
    HADAL_RETURN_IF_ERROR(Execute(command));
  }
}

absl::Status Decoder::Execute(const DecodeCommand& command) {
  HADAL_CHECK_LT(command.lane, capacity_.lanes);
  if (command.kind == DecodeCommand::Kind::kEncode) {
    lanes_[command.lane].BeginGroup(command);
    return Encode(command.lane);
  }
  lanes_[command.lane].BeginStep(command);
  return Step(command.lane);
}

absl::Status Decoder::Encode(int32_t lane) {
  const PackedBatch& batch = lanes_[lane].batch();
  const SublayerContext context{.stream = stream_,
                                .parameters = parameters_,
                                .workspace = buffers_.workspace(),
                                .batch = batch,
                                .scalars = {.update = update_, .training = false},
                                .progress = &progress_};
  CacheRows memory = lanes_[lane].memory();
  if (blocks_) blocks_->FillGroup(stream_, lane, memory);
  for (int c = 0; c < static_cast<int>(chunks_.size()); ++c) {
    DecoderChunk& chunk = *chunks_[c];
    if (chunk.encode_input()) HADAL_RETURN_IF_ERROR(links_.ReceiveStream(c, chunk.EncodeInput(batch.source_rows())));
    if (!chunk.encodes()) continue;
    const ConstAnyMatrix stream = chunk.Encode(context, memory, lane);
    if (chunk.encode_output()) HADAL_RETURN_IF_ERROR(links_.SendStream(c, stream));
  }
  return absl::OkStatus();
}

absl::Status Decoder::Step(int32_t lane) {
  IncrementalRows rows = lanes_[lane].rows();
  if (blocks_) blocks_->FillStep(stream_, lane, rows);
  const IncrementalContext context{
      .stream = stream_, .parameters = parameters_, .scratch = buffers_.scratch(), .rows = rows, .update = update_};
  for (int c = 0; c < static_cast<int>(chunks_.size()); ++c) {
    DecoderChunk& chunk = *chunks_[c];
    if (chunk.step_input()) HADAL_RETURN_IF_ERROR(links_.ReceiveStream(c, chunk.StepInput(rows.rows())));
    if (!chunk.steps()) continue;
    const ConstAnyMatrix stream = chunk.Step(context, lane);
    if (chunk.step_output()) HADAL_RETURN_IF_ERROR(links_.SendStream(c, stream));
    communicator_.Progress();
  }
  // What the lane's next tables are written over has been read. Where a step was run, its answer has been waited for anyway.
  stream_.Synchronize();
  return absl::OkStatus();
}

}  // namespace hadal
