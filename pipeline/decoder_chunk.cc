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
  saved_ = arena.Get<float>(saved_slice_);
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
  for (int32_t s = std::max(first, 1), end = s; s < std::min(last, target); s = end) {
    end = plan.NextCut(s + 1);
    encoder_.emplace_back(plan, s, end, Activations(capacity));
    buffers.RequireSaved(encoder_.back().saved_floats());
  }
  if (first <= target && target < last) embedding_target_.emplace(plan, target, layout);
  AddDecoderSublayers(plan, layout);
  if (last > plan.output_head()) head_.emplace(plan, capacity.rows, candidates, layout);
}

void DecoderChunk::AddDecoderSublayers(const ModelPlan& plan, ArenaLayout& layout) {
  int32_t cached_layer = -1;
  for (int32_t s = std::max(first_, plan.target_embedding() + 1); s < std::min(last_, plan.output_head()); ++s) {
    const SublayerRecord& record = plan.sublayers[s];
    if (record.kind != SublayerKind::kFeedForward && record.layer != cached_layer) {
      cached_layer = record.layer;
      cache_slices_.push_back(layout.Reserve<float>("decode caches", lanes_ * cache_rows_ * 2 * d_model_));
    }
    decoder_.push_back({IncrementalSublayer(plan, s), static_cast<int32_t>(cache_slices_.size()) - 1});
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
  if (embedding_source_) embedding_source_->Forward(context, buffers_.stream(at, rows));
  for (const Segment& segment : encoder_) {
    segment.Forward(context, buffers_.stream(at, rows), buffers_.saved(), buffers_.stream(at + 1, rows));
    ++at;
    context.Progress();
  }
  const ConstMatrix stream = buffers_.stream(at, rows);
  for (const DecoderSublayer& s : decoder_) {
    if (s.sublayer.kind() != SublayerKind::kCrossAttention) continue;
    s.sublayer.CacheMemory(context.stream, context.parameters, stream, CacheOf(s, lane).Rows(1, rows));
    context.Progress();
  }
  return stream;
}

ConstMatrix DecoderChunk::Step(const IncrementalContext& context, int32_t lane) {
  const int64_t rows = context.rows.rows();
  int at = 0;
  if (embedding_target_) {
    embedding_target_->ForwardAt(context.stream, context.parameters, context.rows.tokens, context.rows.positions,
                                 buffers_.stream(at, rows));
  }
  for (const DecoderSublayer& s : decoder_) {
    const bool attends = s.sublayer.kind() != SublayerKind::kFeedForward;
    s.sublayer.Step(context, buffers_.stream(at, rows), attends ? CacheOf(s, lane) : Matrix(),
                    buffers_.stream(at + 1, rows));
    ++at;
  }
  const ConstMatrix stream = buffers_.stream(at, rows);
  if (head_) candidates_ = head_->Forward(context.stream, context.parameters, buffers_.workspace(), stream);
  return stream;
}

}  // namespace hadal
