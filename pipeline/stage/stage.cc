#include "pipeline/stage/stage.h"

#include "pipeline/layout/slice_ownership.h"

namespace hadal {
namespace {

// The least divisor of `slots` that is not below `needed`.
int32_t DivisorFrom(int32_t needed, int32_t slots) {
  while (slots % needed != 0) ++needed;
  return needed;
}

}  // namespace

Stage::Stage(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream, Purpose purpose,
             ArenaLayout& layout)
    : plan_(plan),
      stream_(stream),
      parameters_(plan, Sublayers(pipeline, rank), purpose, layout, UpdatedSlices(plan, pipeline, rank)),
      workspace_(plan, pipeline.capacity, stream, purpose, layout),
      shared_(plan, pipeline.capacity, purpose, layout) {
  const bool trains = purpose == Purpose::kTraining;
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    const ChunkSpec spec{
        .first = pipeline.first_sublayer(rank, c),
        .last = pipeline.last_sublayer(rank, c),
        .slots = trains ? pipeline.peak_live[rank][c] : 1,
        .input_slots = trains ? DivisorFrom(pipeline.peak_input[rank][c], pipeline.peak_live[rank][c]) : 1,
        .pending_slots = trains ? pipeline.pending_slots(rank, c) : 0,
        .recompute_every = trains ? pipeline.recompute_every : 1,
        .purpose = purpose,
        .on_device = stream.kind() != DeviceKind::kCpu,
        .graphs = pipeline.graphs,
        .replicas = pipeline.grid.replicas,
        .inputs_on_device = pipeline.device_transfers};
    chunks_.push_back(std::make_unique<Chunk>(plan, spec, pipeline.capacity, shared_, layout));
  }
  shared_.ReserveRequired(trains ? pipeline.peak_pending[rank] : 0, layout);
}

std::vector<int32_t> Stage::Sublayers(const PipelineLayout& pipeline, int rank) {
  std::vector<int32_t> sublayers;
  for (int c = 0; c < pipeline.shape.chunks; ++c) {
    for (int32_t s = pipeline.first_sublayer(rank, c); s < pipeline.last_sublayer(rank, c); ++s) sublayers.push_back(s);
  }
  return sublayers;
}

int64_t Stage::graph_bytes() const {
  int64_t bytes = 0;
  for (const std::unique_ptr<Chunk>& chunk : chunks_)
    bytes += chunk->graphs() == nullptr ? 0 : chunk->graphs()->bytes();
  return bytes;
}

void Stage::Bind(const Arena& arena) {
  parameters_.Bind(arena);
  workspace_.Bind(arena);
  shared_.Bind(arena);
  for (std::unique_ptr<Chunk>& chunk : chunks_) chunk->Bind(arena);
}

}  // namespace hadal
