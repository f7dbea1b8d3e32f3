#include "pipeline/decode/decoder_parts.h"

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
    chunks.push_back(std::make_unique<DecoderChunk>(plan, pipeline.first_sublayer(stage, c),
                                                    pipeline.last_sublayer(stage, c), capacity,
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

}  // namespace hadal
