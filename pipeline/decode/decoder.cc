#include "pipeline/decode/decoder.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "pipeline/decode/decode_driver.h"
#include "runtime/status_macros.h"

namespace hadal {

DecoderParts::DecoderParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage,
                           const DecoderOptions& options, const DecodeCapacity& capacity, const Stream& stream,
                           ArenaLayout& layout)
    : options(options),
      capacity(capacity),
      buffers(plan, capacity, stream, layout),
      links(plan, pipeline, stage, capacity, stream, layout) {
  const DecoderChunk::Launching launching{
      .on_device = stream.kind() != DeviceKind::kCpu, .graphs = options.graphs, .logits = ReadsLogits(options)};
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    const int g = pipeline.shape.GlobalChunk(stage, c);
    chunks.push_back(std::make_unique<DecoderChunk>(plan, pipeline.borders[g], pipeline.borders[g + 1],
                                                    KnownInFrontOf(plan, pipeline, g),
                                                    KnownInFrontOf(plan, pipeline, g + 1), capacity,
                                                    CandidatesPerHypothesis(options.beam), buffers, launching, layout));
  }
  if (launching.on_device) blocks.emplace(capacity, layout);
  buffers.ReserveRequired(layout);
}

void DecoderParts::Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout) {
  buffers.Bind(arena);
  links.Bind(arena, communicator, timeout);
  for (std::unique_ptr<DecoderChunk>& chunk : chunks) chunk->Bind(arena);
  if (blocks) blocks->Bind(arena);
}

int64_t DecoderParts::graph_bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<DecoderChunk>& chunk : chunks) {
    bytes += chunk->graphs() == nullptr ? 0 : chunk->graphs()->bytes();
  }
  return bytes;
}

Decoder::Decoder(const ModelPlan& plan, const ParameterStore& parameters, const Stream& stream,
                 Communicator& communicator, DecoderParts& parts, absl::Duration timeout)
    : plan_(plan),
      parameters_(parameters),
      stream_(stream),
      communicator_(communicator),
      collectives_(communicator, timeout),
      parts_(parts),
      lanes_(parts.capacity.lanes, DecodeLane(parts.capacity, stream.kind() != DeviceKind::kCpu)),
      progress_([this] { communicator_.Progress(); }) {}

absl::StatusOr<std::unique_ptr<Decoder>> Decoder::Create(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                         const ParameterStore& parameters, const Stream& stream,
                                                         Communicator& communicator, const DecoderOptions& options,
                                                         absl::Duration timeout) {
  HADAL_ASSIGN_OR_RETURN(const DecodeCapacity capacity, AsCommonError(MakeDecodeCapacity(plan, pipeline, options)));
  ArenaLayout layout;
  auto parts = std::make_unique<DecoderParts>(plan, pipeline, communicator.rank(), options, capacity, stream, layout);
  std::unique_ptr<Decoder> decoder = Over(plan, parameters, stream, communicator, *parts, timeout);
  absl::StatusOr<Arena> arena = Arena::Allocate(layout, stream.device());
  HADAL_RETURN_IF_ERROR(decoder->collectives_.AllOk(arena.status(), "allocating memory for translation"));
  parts->Bind(*arena, communicator, timeout);
  decoder->arena_ = *std::move(arena);
  decoder->own_parts_ = std::move(parts);
  return decoder;
}

std::unique_ptr<Decoder> Decoder::Over(const ModelPlan& plan, const ParameterStore& parameters, const Stream& stream,
                                       Communicator& communicator, DecoderParts& parts, absl::Duration timeout) {
  return std::unique_ptr<Decoder>(new Decoder(plan, parameters, stream, communicator, parts, timeout));
}

absl::StatusOr<std::vector<std::vector<int32_t>>> Decoder::WithEnds(
    std::span<const std::vector<int32_t>> sources) const {
  std::vector<std::vector<int32_t>> ended(sources.begin(), sources.end());
  if (!plan_.options.has_encoder()) {
    for (const std::vector<int32_t>& source : sources) HADAL_CHECK_EQ(source.size(), size_t{0});
    return ended;
  }
  for (size_t s = 0; s < ended.size(); ++s) {
    const auto tokens = static_cast<int64_t>(ended[s].size());
    if (tokens < 1 || tokens > longest_source_tokens()) {
      return InvalidArgumentError("source ", s + 1, " has ", tokens, " tokens; 1 … ", longest_source_tokens(),
                                  " can be translated");
    }
    ended[s].push_back(kEosToken);
  }
  return ended;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> Decoder::SourcesOf(
    std::span<const std::span<const float>> utterances) const {
  std::vector<std::vector<int32_t>> sources;
  for (size_t s = 0; s < utterances.size(); ++s) {
    const int64_t frames = std::ssize(utterances[s]) / plan_.options.frame_width;
    HADAL_CHECK_EQ(std::ssize(utterances[s]) % plan_.options.frame_width, 0);
    const int64_t rows = frames > 0 ? SubsampledRows(frames) : 0;
    if (rows < 1 || rows > capacity().longest_source) {
      return InvalidArgumentError("utterance ", s + 1, " has ", frames, " frames, ", rows, " encoder rows; 1 … ",
                                  capacity().longest_source, " rows can be recognised");
    }
    sources.emplace_back(rows, static_cast<int32_t>(s));
  }
  return sources;
}

absl::StatusOr<std::vector<Translation>> Decoder::Translate(std::span<const std::vector<int32_t>> sources,
                                                            int64_t update, std::span<const OutputStart> starts,
                                                            std::span<const std::span<const float>> utterances,
                                                            const std::function<bool()>& stop) {
  HADAL_CHECK(starts.empty() || starts.size() == sources.size());
  const bool speech = plan_.options.reads_speech();
  if (speech) HADAL_CHECK_EQ(utterances.size(), sources.size());
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<int32_t>> ended,
                         speech ? SourcesOf(utterances) : WithEnds(sources));
  utterances_ = utterances;
  update_ = std::max<int64_t>(update, 1);
  for (const std::unique_ptr<DecoderChunk>& chunk : parts_.chunks) chunk->Begin(stream_, update_);
  std::vector<Translation> translations(sources.size());
  const bool searches = communicator_.rank() == parts_.links.searcher();
  // Buffers may go next.
  HADAL_RETURN_IF_ERROR(
      WithdrawOnError(searches ? Search(ended, starts, stop, translations) : Follow(), communicator_));
  HADAL_RETURN_IF_ERROR(parts_.links.Drain());
  stream_.Synchronize();  // training may use the memory now
  if (communicator_.size() == 1) return translations;
  std::string bytes = searches ? TranslationsToBytes(translations) : "";
  HADAL_RETURN_IF_ERROR(collectives_.Broadcast(bytes, parts_.links.searcher(), "translations"));
  return searches ? std::move(translations) : TranslationsFromBytes(bytes);
}

absl::Status Decoder::Search(std::span<const std::vector<int32_t>> sources, std::span<const OutputStart> starts,
                             const std::function<bool()>& stop, std::vector<Translation>& translations) {
  DecodeDriver driver(parts_.capacity, parts_.options.beam, plan_.options.max_positions, sources, translations, starts);
  std::deque<DecodeCommand> under_way;
  const auto give = [&](std::vector<DecodeCommand> commands) -> absl::Status {
    for (DecodeCommand& command : commands) {
      HADAL_RETURN_IF_ERROR(parts_.links.SendCommand(command));
      under_way.push_back(std::move(command));
    }
    return absl::OkStatus();
  };
  for (int32_t lane = 0; lane < parts_.capacity.lanes; ++lane) HADAL_RETURN_IF_ERROR(give(driver.Next(lane)));
  while (!under_way.empty()) {
    const DecodeCommand command = std::move(under_way.front());
    under_way.pop_front();
    HADAL_RETURN_IF_ERROR(Execute(command));
    if (command.kind != DecodeCommand::Kind::kStep || (stop && stop())) continue;
    driver.Advance(command.lane, parts_.chunks.back()->Candidates(stream_, lanes_[command.lane].rows().rows(),
                                                                  driver.WantsLogits(command.lane)));
    HADAL_RETURN_IF_ERROR(give(driver.Next(command.lane)));
  }
  return parts_.links.SendCommand({.kind = DecodeCommand::Kind::kEnd});
}

absl::Status Decoder::Follow() {
  DecodeCommand command;
  while (true) {
    HADAL_RETURN_IF_ERROR(parts_.links.ReceiveCommand(command));
    if (command.kind == DecodeCommand::Kind::kEnd) return absl::OkStatus();
    HADAL_RETURN_IF_ERROR(Execute(command));
  }
}

absl::Status Decoder::Execute(const DecodeCommand& command) {
  HADAL_CHECK_LT(command.lane, parts_.capacity.lanes);
  if (command.kind == DecodeCommand::Kind::kEncode) {
    lanes_[command.lane].BeginGroup(command, utterances_, plan_.options.frame_width);
    return Encode(command.lane);
  }
  lanes_[command.lane].BeginStep(command);
  return Step(command.lane);
}

absl::Status Decoder::Encode(int32_t lane) {
  const PackedBatch& batch = lanes_[lane].batch();
  const SublayerContext context{.stream = stream_,
                                .parameters = parameters_,
                                .workspace = parts_.buffers.workspace(),
                                .batch = batch,
                                .scalars = {.update = update_, .training = false},
                                .progress = &progress_};
  CacheRows encoder_output = lanes_[lane].encoder_output();
  if (parts_.blocks) parts_.blocks->FillGroup(stream_, lane, encoder_output);
  for (int c = 0; c < static_cast<int>(parts_.chunks.size()); ++c) {
    DecoderChunk& chunk = *parts_.chunks[c];
    const int64_t source_rows = batch.source_rows();
    if (chunk.encode_input()) HADAL_RETURN_IF_ERROR(parts_.links.ReceiveResidual(c, chunk.EncodeInput(source_rows)));
    if (const Matrix second = chunk.EncodeSecondInput(source_rows); !second.empty()) {
      HADAL_RETURN_IF_ERROR(parts_.links.ReceiveResidual(c, second));
    }
    if (!chunk.encodes()) continue;
    const ConstAnyMatrix residual = chunk.Encode(context, encoder_output, lane);
    if (chunk.encode_output()) HADAL_RETURN_IF_ERROR(parts_.links.SendResidual(c, residual));
    if (const Matrix second = chunk.EncodeSecondOutput(source_rows); !second.empty()) {
      HADAL_RETURN_IF_ERROR(parts_.links.SendResidual(c, second));
    }
  }
  return absl::OkStatus();
}

absl::Status Decoder::Step(int32_t lane) {
  IncrementalRows rows = lanes_[lane].rows();
  if (parts_.blocks) parts_.blocks->FillStep(stream_, lane, rows);
  const IncrementalContext context{.stream = stream_,
                                   .parameters = parameters_,
                                   .scratch = parts_.buffers.scratch(),
                                   .rows = rows,
                                   .rotary = parts_.buffers.workspace().rotary(),
                                   .update = update_};
  for (int c = 0; c < static_cast<int>(parts_.chunks.size()); ++c) {
    DecoderChunk& chunk = *parts_.chunks[c];
    if (chunk.step_input()) HADAL_RETURN_IF_ERROR(parts_.links.ReceiveResidual(c, chunk.StepInput(rows.rows())));
    if (const Matrix second = chunk.StepSecondInput(rows.rows()); !second.empty()) {
      HADAL_RETURN_IF_ERROR(parts_.links.ReceiveResidual(c, second));
    }
    if (!chunk.steps()) continue;
    const ConstAnyMatrix residual = chunk.Step(context, lane);
    if (chunk.step_output()) HADAL_RETURN_IF_ERROR(parts_.links.SendResidual(c, residual));
    if (const Matrix second = chunk.StepSecondOutput(rows.rows()); !second.empty()) {
      HADAL_RETURN_IF_ERROR(parts_.links.SendResidual(c, second));
    }
    communicator_.Progress();
  }
  // What the lane's next tables are written over has been read. Where a step was run, its answer has been waited for
  // anyway.
  stream_.Synchronize();
  return absl::OkStatus();
}

}  // namespace hadal
