#include "pipeline/decoder_chunk.h"

#include <algorithm>

#include "layers/border.h"
#include "runtime/check.h"

namespace hadal {
namespace {

bool Crosses(const std::vector<Edge>& edges, Stack rows) {
  return std::any_of(edges.begin(), edges.end(), [&](const Edge& edge) { return edge.rows == rows; });
}

ActivationCapacity Activations(const DecodeCapacity& capacity) {
  return {.source_rows = capacity.source_rows, .target_rows = 0, .max_length = capacity.longest_source};
}

}  // namespace

DecodeBuffers::DecodeBuffers(const ModelPlan& plan, const DecodeCapacity& capacity, const Stream& stream,
                             ArenaLayout& layout)
    : width_(plan.options.d_model),
      workspace_(plan, Activations(capacity), stream, /*training=*/false, layout),
      scratch_(plan, capacity.rows, std::max(capacity.longest_source, capacity.longest_path), stream, layout) {
  for (ArenaSlice& slice : stream_slices_) {
    slice = layout.Reserve<float>("decode workspace", std::max(capacity.rows, capacity.source_rows) * width_);
  }
}

void DecodeBuffers::Bind(const Arena& arena) {
  workspace_.Bind(arena);
  scratch_.Bind(arena);
  saved_ = arena.Get<std::byte>(saved_slice_);
  history_ = arena.Get<float>(history_slice_);
  for (int i = 0; i < 2; ++i) streams_[i] = arena.Get<float>(stream_slices_[i]);
}

DecoderChunk::DecoderChunk(const ModelPlan& plan, int32_t first, int32_t last, const DecodeCapacity& capacity,
                           int32_t candidates, DecodeBuffers& buffers, ArenaLayout& layout)
    : first_(first),
      last_(last),
      d_model_(plan.options.d_model),
      cache_rows_(capacity.cache_rows),
      lanes_(capacity.lanes),
      buffers_(buffers) {
  if (first > 0) {
    encode_input_ = Crosses(BorderEdges(plan, first), Stack::kEncoder);
    step_input_ = Crosses(BorderEdges(plan, first), Stack::kDecoder);
  }
  if (last < static_cast<int32_t>(plan.sublayers.size())) {
    encode_output_ = Crosses(BorderEdges(plan, last), Stack::kEncoder);
    step_output_ = Crosses(BorderEdges(plan, last), Stack::kDecoder);
  }
  const int32_t target = plan.target_embedding();
  if (first == plan.source_embedding()) embedding_source_.emplace(plan, plan.source_embedding(), layout);
  AddEncoderSegments(plan, capacity);
  if (first <= target && target < last) embedding_target_.emplace(plan, target, layout);
  AddDecoderSublayers(plan, capacity, layout);
  if (last > plan.output_head()) head_.emplace(plan, capacity.rows, candidates, layout);
}

int64_t DecoderChunk::AddHistory(const ModelPlan& plan, int32_t first, int32_t last, int64_t rows,
                                 std::optional<LayerCombination>& closing) {
  if (first >= last || !plan.Combines(plan.sublayers[first].stack)) return 0;
  buffers_.RequireHistory((plan.sublayers[last - 1].layer + 2) * rows * d_model_);
  if (plan.ends_stack(last)) {
    closing.emplace(plan, last - 1, rows);
    buffers_.RequireSaved(closing->saved_bytes());
  }
  return plan.sublayers[first].layer + 1;
}

void DecoderChunk::AddEncoderSegments(const ModelPlan& plan, const DecodeCapacity& capacity) {
  const int32_t first = std::max(first_, 1), last = std::min(last_, plan.target_embedding());
  encode_history_ = AddHistory(plan, first, last, capacity.source_rows, encoder_closing_);
  for (int32_t s = first, end = s; s < last; s = end) {
    end = plan.NextCut(s + 1);
    encoder_.emplace_back(plan, s, end, Activations(capacity));
    buffers_.RequireSaved(encoder_.back().saved_bytes());
  }
}

void DecoderChunk::AddDecoderSublayers(const ModelPlan& plan, const DecodeCapacity& capacity, ArenaLayout& layout) {
  const int32_t first = std::max(first_, plan.target_embedding() + 1), last = std::min(last_, plan.output_head());
  step_history_ = AddHistory(plan, first, last, capacity.rows, decoder_closing_);
  int32_t cached_layer = -1;
  for (int32_t s = first; s < last; ++s) {
    const SublayerRecord& record = plan.sublayers[s];
    if (record.kind != SublayerKind::kFeedForward && record.layer != cached_layer) {
      cached_layer = record.layer;
      cache_slices_.push_back(layout.Reserve<float>("decode caches", lanes_ * cache_rows_ * 2 * d_model_));
    }
    decoder_.push_back({IncrementalSublayer(plan, s), static_cast<int32_t>(cache_slices_.size()) - 1});
    if (!plan.Combines(Stack::kDecoder)) continue;
    DecoderSublayer& added = decoder_.back();
    if (record.kind == SublayerKind::kFeedForward) added.entry = record.layer + 1;
    if (record.kind != SublayerKind::kSelfAttention) continue;
    added.combination.emplace(plan, s, capacity.rows);
    buffers_.RequireSaved(added.combination->saved_bytes());
  }
}

void DecoderChunk::Bind(const Arena& arena) {
  if (embedding_source_) embedding_source_->Bind(arena);
  if (embedding_target_) embedding_target_->Bind(arena);
  if (head_) head_->Bind(arena);
  for (const ArenaSlice& slice : cache_slices_) caches_.push_back(arena.Get<float>(slice));
}

ConstMatrix DecoderChunk::Encode(const SublayerContext& context, int32_t lane) const {
  const int64_t rows = context.batch.source_rows();
  int at = 0;
  ConstMatrix stream = EncodeInput(rows);
  if (embedding_source_) embedding_source_->Forward(context, EncodeInput(rows));
  for (const Segment& segment : encoder_) {
    const int64_t entries = segment.combines() ? segment.entries() : 0;
    const Matrix out =
        entries > 0 ? buffers_.history(entries + 1, rows).Rows(entries * rows, rows) : buffers_.stream(++at, rows);
    segment.Forward(context, stream, buffers_.saved(), out);
    stream = entries > 0 ? buffers_.history(entries + 1, rows) : out;
    context.Progress();
  }
  if (encoder_closing_) stream = Close(*encoder_closing_, context.stream, context.parameters, rows);
  for (const DecoderSublayer& s : decoder_) {
    if (s.sublayer.kind() != SublayerKind::kCrossAttention) continue;
    s.sublayer.CacheMemory(context.stream, context.parameters, stream, CacheOf(s, lane).Rows(1, rows));
    context.Progress();
  }
  return stream;
}

ConstMatrix DecoderChunk::Close(const LayerCombination& closing, const Stream& stream, const ParameterStore& parameters,
                                int64_t rows) const {
  const Matrix out = buffers_.stream(0, rows);
  closing.Forward(stream, parameters, buffers_.history(closing.entries(), rows), buffers_.saved(), out);
  return out;
}

ConstMatrix DecoderChunk::Step(const IncrementalContext& context, int32_t lane) {
  const int64_t rows = context.rows.rows();
  int at = 0;
  ConstMatrix x = StepInput(rows);
  if (embedding_target_) {
    embedding_target_->ForwardAt(context.stream, context.parameters, context.rows.tokens, context.rows.positions,
                                 StepInput(rows));
  }
  for (const DecoderSublayer& s : decoder_) {
    if (s.combination) {
      const Matrix combined = buffers_.stream(++at, rows);
      s.combination->Forward(context.stream, context.parameters, buffers_.history(s.combination->entries(), rows),
                             buffers_.saved(), combined);
      x = combined;
    }
    const Matrix out =
        s.entry >= 0 ? buffers_.history(s.entry + 1, rows).Rows(s.entry * rows, rows) : buffers_.stream(++at, rows);
    const bool attends = s.sublayer.kind() != SublayerKind::kFeedForward;
    s.sublayer.Step(context, x, attends ? CacheOf(s, lane) : Matrix(), out);
    // Behind a layer that others read the stream is the history.
    x = s.entry >= 0 ? buffers_.history(s.entry + 1, rows) : out;
  }
  if (decoder_closing_) x = Close(*decoder_closing_, context.stream, context.parameters, rows);
  if (head_) candidates_ = head_->Forward(context.stream, context.parameters, buffers_.workspace(), x);
  return x;
}

}  // namespace hadal
