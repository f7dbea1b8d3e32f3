#include "pipeline/decode/decoder_chunk.h"

#include <algorithm>

#include "layers/border.h"
#include "layers/speech_front_end.h"

namespace hadal {
namespace {

// The edge of so many rows; null: none crosses.
const Edge* EdgeOf(const std::vector<Edge>& edges, Stack rows) {
  const auto edge = std::find_if(edges.begin(), edges.end(), [&](const Edge& e) { return e.rows == rows; });
  return edge == edges.end() ? nullptr : &*edge;
}

// The stack whose second stream is among the edges.
std::optional<Stack> SecondStreamOf(const std::vector<Edge>& edges) {
  for (const Edge& edge : edges) {
    if (edge.kind == EdgeKind::kSecondStream) return edge.rows;
  }
  return std::nullopt;
}

}  // namespace

DecoderChunk::DecoderChunk(const ModelPlan& plan, int32_t first, int32_t last, int64_t known_input,
                           int64_t known_output, const DecodeCapacity& capacity, int32_t candidates,
                           DecodeBuffers& buffers, const Launching& launching, ArenaLayout& layout)
    : plan_(plan),
      first_(first),
      last_(last),
      known_input_(known_input),
      known_output_(known_output),
      d_model_(plan.options.d_model),
      cache_rows_(capacity.cache_rows),
      lanes_(capacity.lanes),
      buffers_(buffers),
      encode_storage_(plan.residual_storage(Stack::kEncoder)),
      step_storage_(plan.residual_storage(Stack::kDecoder)) {
  if (first > 0) {
    const std::vector<Edge> edges = BorderEdges(plan, first);
    const Edge *const encode = EdgeOf(edges, Stack::kEncoder), *const step = EdgeOf(edges, Stack::kDecoder);
    encode_input_ = encode != nullptr;
    step_input_ = step != nullptr;
    input_second_ = SecondStreamOf(edges);
    if (encode_input_) encode_storage_ = encode->values;
    if (step_input_) step_storage_ = step->values;
    // At a border's first stack; behind the encoder its output crosses, which is one stream.
    if (encode_input_ && !step_input_) encode_residuals_ = plan.ResidualsBefore(first);
    if (step_input_) step_residuals_ = plan.ResidualsBefore(first);
  }
  if (last < static_cast<int32_t>(plan.sublayers.size())) {
    const std::vector<Edge> edges = BorderEdges(plan, last);
    encode_output_ = EdgeOf(edges, Stack::kEncoder) != nullptr;
    step_output_ = EdgeOf(edges, Stack::kDecoder) != nullptr;
    output_second_ = SecondStreamOf(edges);
  }
  const int32_t target = plan.target_embedding();
  if (first == plan.source_embedding()) {
    if (plan.options.reads_speech()) {
      const DeviceKind kind = launching.on_device ? DeviceKind::kCuda : DeviceKind::kCpu;
      front_end_ = std::make_unique<SpeechFrontEnd>(plan, capacity.source_rows, kind, Purpose::kInference, layout);
    } else {
      front_end_ = std::make_unique<TokenEmbedding>(plan, plan.source_embedding(), capacity.source_rows,
                                                    Purpose::kInference, layout);
    }
    buffers_.RequireSaved(front_end_->saved_bytes());
  }
  AddEncoderSegments(plan, capacity);
  if (first <= target && target < last) {
    embedding_target_.emplace(plan, target, capacity.rows, Purpose::kInference, layout);
  }
  AddDecoderSublayers(plan, capacity, layout);
  if (last > plan.output_head())
    head_.emplace(plan, capacity.rows, candidates, launching.on_device && launching.logits, layout);
  if (!launching.on_device) return;
  if (front_end_ != nullptr || !encoder_.empty()) {
    groups_.emplace(BatchSlots::Spec{.first_sublayer = first,
                                     .sublayers = last - first,
                                     .slots = capacity.lanes,
                                     .capacity = GroupCapacity(capacity),
                                     .frame_width = front_end_ != nullptr ? plan.options.frame_width : 0},
                    layout);
  }
  branch_gains_slice_ = layout.Reserve<float>("decode tables", last - first);
  // Of a lane: a step, and an encoding with either number of attention's tiles (kernels/device_batch.h).
  if (launching.graphs) graphs_ = std::make_unique<GraphCache>(3 * capacity.lanes);
}

int64_t DecoderChunk::AddHistory(const ModelPlan& plan, int32_t first, int32_t last, int64_t rows, Closing& closing) {
  const bool has_part = first < last || (first == last && plan.begins_stack(first));  // or the embedding alone
  if (!has_part || !plan.KeepsHistory(plan.sublayers[first].stack)) return 0;
  const Stack stack = plan.sublayers[first].stack;
  const int64_t entries = plan.HistoryBefore(last);
  buffers_.RequireHistory(entries * rows * d_model_ * BytesOf(plan.residual_storage(stack)));
  if (plan.ends_stack(last)) {
    closing.entries = entries;
    if (plan.Combines(stack)) {
      closing.combination.emplace(plan, last - 1, rows);
      buffers_.RequireSaved(closing.combination->saved_bytes());
    } else {
      closing.reading.emplace(plan, last - 1, rows);
      buffers_.RequireSaved(closing.reading->saved_bytes());
    }
  }
  return plan.HistoryBefore(first);
}

void DecoderChunk::AddEncoderSegments(const ModelPlan& plan, const DecodeCapacity& capacity) {
  const int32_t first = std::max(first_, 1), last = std::min(last_, plan.target_embedding());
  encode_history_ = AddHistory(plan, first, last, capacity.source_rows, encoder_closing_);
  if (first < last && plan.ends_stack(last) && plan.HasSecondStream(Stack::kEncoder)) {
    encoder_second_end_.emplace(plan, last - 1, capacity.source_rows);
    buffers_.RequireSaved(encoder_second_end_->saved_bytes());
  }
  for (int32_t s = first, end = s; s < last; s = end) {
    end = plan.NextCut(s + 1);
    encoder_.push_back({MakeSegment(plan, s, end, GroupCapacity(capacity)), s, end});
    buffers_.RequireSaved(encoder_.back().part->saved_bytes());
  }
}

void DecoderChunk::AddDecoderSublayers(const ModelPlan& plan, const DecodeCapacity& capacity, ArenaLayout& layout) {
  const int32_t first = std::max(first_, plan.target_embedding() + 1), last = std::min(last_, plan.output_head());
  step_history_ = AddHistory(plan, first, last, capacity.rows, decoder_closing_);
  if (first < last && plan.ends_stack(last) && plan.HasSecondStream(Stack::kDecoder)) {
    decoder_second_end_.emplace(plan, last - 1, capacity.rows);
  }
  int32_t cached_layer = -1;
  for (int32_t s = first; s < last; ++s) {
    const SublayerRecord& record = plan.sublayers[s];
    if (record.kind != SublayerKind::kFeedForward && record.layer != cached_layer) {
      cached_layer = record.layer;
      cache_slices_.push_back(layout.ReserveBytes(
          "decode caches", lanes_ * cache_rows_ * 2 * plan.options.key_width() * BytesOf(plan.compute_storage)));
    }
    decoder_.push_back({IncrementalSublayer(plan, s), static_cast<int32_t>(cache_slices_.size()) - 1});
    DecoderSublayer& added = decoder_.back();
    if (plan.ReadsBlocks(Stack::kDecoder)) {
      added.reader.emplace(plan, s, s + 1);
      buffers_.RequireSaved(added.reader->At(nullptr, capacity.rows).bytes);
      added.in_block = plan.OpenSublayers(s) > 0;
      if (plan.OpenSublayers(s + 1) == 0) added.entry = added.reader->sources();
    }
    if (!plan.Combines(Stack::kDecoder)) continue;
    if (record.kind == SublayerKind::kFeedForward) added.entry = record.layer + 1;
    if (record.kind != SublayerKind::kSelfAttention) continue;
    added.combination.emplace(plan, s, capacity.rows);
    buffers_.RequireSaved(added.combination->saved_bytes());
  }
}

void DecoderChunk::Bind(const Arena& arena) {
  if (front_end_ != nullptr) front_end_->Bind(arena);
  if (embedding_target_) embedding_target_->Bind(arena);
  if (head_) head_->Bind(arena);
  for (const ArenaSlice& slice : cache_slices_) caches_.push_back(arena.Get<std::byte>(slice));
  if (groups_) groups_->Bind(arena);
  if (branch_gains_slice_.bytes > 0) branch_gains_ = arena.Get<float>(branch_gains_slice_);
}

void DecoderChunk::Begin(const Stream& stream, int64_t update) const {
  const int64_t row_bytes = 2 * plan_.options.key_width() * BytesOf(plan_.compute_storage);
  for (std::byte* cache : caches_) {
    for (int32_t lane = 0; lane < lanes_; ++lane) stream.Clear(cache + lane * cache_rows_ * row_bytes, row_bytes);
  }
  if (branch_gains_ == nullptr) return;
  std::vector<float> gains;
  for (int32_t s = first_; s < last_; ++s) gains.push_back(BranchGain(plan_.sublayers[s], update));
  stream.FromHost(branch_gains_, gains.data(), static_cast<int64_t>(gains.size() * sizeof(float)));
}

void DecoderChunk::Run(const Stream& stream, const GraphKey& key, const std::function<void()>& launch) const {
  if (graphs_ == nullptr) return launch();
  graphs_->Run(*stream.device(), key, [&](const GraphCache::Cut*) { launch(); });
}

bool DecoderChunk::EncodeLaunches() const {
  const bool caches = std::any_of(decoder_.begin(), decoder_.end(), [](const DecoderSublayer& s) {
    return s.sublayer.kind() == SublayerKind::kCrossAttention;
  });
  return caches || front_end_ != nullptr || !encoder_.empty();
}

ConstAnyMatrix DecoderChunk::Encode(const SublayerContext& context, const CacheRows& encoder_output, int32_t lane) {
  if (!EncodeLaunches()) return EncodeInput(context.batch.source_rows());  // the encoder's output passes through
  SublayerContext placed = context;
  if (graphs_ != nullptr) placed.progress = nullptr;  // of the host, which no graph holds
  GraphKey key{.phase = GraphPhase::kDecodeEncode, .slot = lane};
  if (groups_) {
    placed.device_batch = &groups_->Fill(context);
    key.shape = groups_->ShapeOf(context.batch);
  }
  Run(context.stream, key, [&] { encoded_ = EncodeSublayers(placed, encoder_output, lane); });
  return Lacking(encoded_, step_output_ ? 0 : known_output_ * context.batch.source_rows());
}

ConstAnyMatrix DecoderChunk::Step(const IncrementalContext& context, int32_t lane) {
  IncrementalContext placed = context;
  placed.branch_gains = branch_gains_;
  placed.first_sublayer = first_;
  const int64_t rows = context.rows.rows();
  Run(context.stream, {.phase = GraphPhase::kDecodeStep, .slot = lane, .shape = {.target_rows = rows}},
      [&] { stepped_ = StepSublayers(placed, lane); });
  return Lacking(stepped_, known_output_ * rows);
}

ConstAnyMatrix DecoderChunk::EncodeSublayers(const SublayerContext& context, const CacheRows& encoder_output,
                                             int32_t lane) const {
  const int64_t rows = context.batch.source_rows();
  const Storage stored = plan_.residual_storage(Stack::kEncoder);
  const Matrix second = Second(Stack::kEncoder, rows);
  const bool reads_blocks = plan_.ReadsBlocks(Stack::kEncoder);
  int at = 0;
  ConstAnyMatrix residual = WholeEncodeInput(rows);
  if (front_end_ != nullptr) {
    front_end_->Forward(context, {.y = WholeEncodeInput(rows), .saved = buffers_.saved()});
  }
  for (const auto& [segment, first, end] : encoder_) {
    const int64_t entries = plan_.KeepsHistory(Stack::kEncoder) ? plan_.HistoryBefore(first) : 0;
    const bool in_block = reads_blocks && plan_.OpenSublayers(first) > 0,
               leaves_open = reads_blocks && plan_.OpenSublayers(end) > 0;
    const AnyMatrix out = leaves_open   ? AnyMatrix(buffers_.second(rows))
                          : entries > 0 ? buffers_.history(entries + 1, rows, stored).Rows(entries * rows, rows)
                                        : buffers_.residual(++at, plan_.ResidualsBefore(end) * rows,
                                                            plan_.segment_storage(Stack::kEncoder, end));
    segment->Forward(context, {.x = residual,
                               .y = out,
                               .second = second,
                               .open = in_block ? buffers_.second(rows) : Matrix(),
                               .saved = buffers_.saved()});
    if (!leaves_open) residual = entries > 0 ? buffers_.history(entries + 1, rows, stored) : out;
    context.Progress();
  }
  if (encoder_closing_.entries > 0) {
    residual = Close(encoder_closing_, context.stream, context.parameters, Stack::kEncoder, rows);
  }
  if (encoder_second_end_) {
    const AnyMatrix out = buffers_.residual(++at, rows, plan_.compute_storage);
    encoder_second_end_->Forward(context, {.x = residual, .y = out, .second = second, .saved = buffers_.saved()});
    residual = out;
  }
  for (const DecoderSublayer& s : decoder_) {
    if (s.sublayer.kind() != SublayerKind::kCrossAttention) continue;
    s.sublayer.CacheEncoderOutput(context.stream, context.parameters, buffers_.scratch(), residual, encoder_output,
                                  CacheOf(s, lane));
    context.Progress();
  }
  return residual;
}

ConstAnyMatrix DecoderChunk::Close(const Closing& closing, const Stream& stream, const ParameterStore& parameters,
                                   Stack stack, int64_t rows) const {
  const AnyMatrix out = buffers_.residual(0, rows, plan_.compute_storage);
  const AnyMatrix history = buffers_.history(closing.entries, rows, plan_.residual_storage(stack));
  if (closing.combination) {
    closing.combination->Combine(stream, parameters, history, buffers_.saved(), out);
  } else {
    closing.reading->Read(stream, parameters, history.floats(), buffers_.saved(), out);
  }
  return out;
}

ConstAnyMatrix DecoderChunk::ReadHistory(const IncrementalContext& context, const DecoderSublayer& s, ConstAnyMatrix x,
                                         int& at) const {
  const int64_t rows = context.rows.rows();
  const Storage stored = plan_.residual_storage(Stack::kDecoder);
  if (s.combination) {
    const AnyMatrix combined = buffers_.residual(++at, rows, stored);
    s.combination->Combine(context.stream, context.parameters, buffers_.history(s.combination->entries(), rows, stored),
                           buffers_.saved(), combined);
    return combined;
  }
  if (!s.reader) return x;
  const BlockReader::Saved read = s.reader->At(buffers_.saved(), rows);
  s.reader->ReadSources(context.stream, context.parameters,
                        buffers_.history(s.reader->sources(), rows, stored).floats(), read);
  if (s.in_block) s.reader->ReadOpen(context.stream, context.parameters, 0, buffers_.second(rows), read);
  return read.read;
}

ConstAnyMatrix DecoderChunk::StepSublayers(const IncrementalContext& context, int32_t lane) const {
  const int64_t rows = context.rows.rows();
  const Storage stored = plan_.residual_storage(Stack::kDecoder);
  const Matrix second = Second(Stack::kDecoder, rows);
  int at = 0;
  ConstAnyMatrix x = WholeStepInput(rows);
  if (embedding_target_) {
    embedding_target_->ForwardAt(context.stream, context.parameters, buffers_.workspace(), context.rows.tokens,
                                 context.rows.positions, context.rows.device_tokens, WholeStepInput(rows));
  }
  for (const DecoderSublayer& s : decoder_) {
    x = ReadHistory(context, s, x, at);
    const AnyMatrix out = s.entry >= 0 ? buffers_.history(s.entry + 1, rows, stored).Rows(s.entry * rows, rows)
                          : s.reader
                              ? AnyMatrix(buffers_.second(rows))
                              : buffers_.residual(++at, s.sublayer.out_residuals() * rows, s.sublayer.out_storage());
    const bool attends = s.sublayer.kind() != SublayerKind::kFeedForward;
    s.sublayer.Step(context, x, attends ? CacheOf(s, lane) : AnyMatrix(), out,
                    s.in_block ? buffers_.second(rows) : second);
    // Behind a layer or block that others read, and within a block, the residual stream is the history.
    const int64_t entries = s.entry >= 0 ? s.entry + 1 : s.reader ? s.reader->sources() : 0;
    x = entries > 0 ? buffers_.history(entries, rows, stored) : out;
  }
  if (decoder_closing_.entries > 0) {
    x = Close(decoder_closing_, context.stream, context.parameters, Stack::kDecoder, rows);
  }
  if (decoder_second_end_) {
    const AnyMatrix out = buffers_.residual(++at, rows, plan_.compute_storage);
    decoder_second_end_->Close(context.stream, context.parameters,
                               {.x = x,
                                .second = second,
                                .normed = context.scratch.branch(rows),
                                .statistics = context.scratch.statistics(),
                                .y = out});
    x = out;
  }
  if (head_) head_->Forward(context.stream, context.parameters, buffers_.workspace(), x);
  return x;
}

}  // namespace hadal
