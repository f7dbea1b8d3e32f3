#include "pipeline/engine/rank_parts.h"

#include <cstdint>

#include "runtime/status_macros.h"

namespace hadal {

RankParts::RankParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, const Stream& stream,
                     Purpose purpose, int64_t gap_bytes)
    : layout(stream.kind(), gap_bytes),
      stage(plan, pipeline, stage, stream, purpose, layout),
      state(plan, pipeline, stage, purpose, layout),
      channels(plan, pipeline, stage, purpose, layout),
      tied(plan, pipeline, stage, stream, layout),
      reduction(pipeline, state, stream, purpose, layout) {
  if (purpose == Purpose::kTraining && pipeline.decoder) {
    layout.BeginProgram();
    decoder.emplace(plan, pipeline, stage, *pipeline.decoder, pipeline.decode_capacity, stream, layout);
  }
}

absl::Status RankParts::Bind(const Arena& arena, ProcessGrid& transfers, ProcessGrid& host, absl::Duration timeout,
                             TraceBuffer& trace) {
  stage.Bind(arena);
  state.Bind(arena, stage.parameters());
  channels.Bind(arena, transfers.pipeline());
  tied.Bind(arena, transfers.pipeline());
  HADAL_RETURN_IF_ERROR(reduction.Bind(arena, state, transfers.replicas(), trace));
  HADAL_RETURN_IF_ERROR(transfers.world().Reserve(channels.transfers() + TiedTables::kUnderWay));
  if (decoder) decoder->Bind(arena, host.pipeline(), timeout);
  return absl::OkStatus();
}

}  // namespace hadal
