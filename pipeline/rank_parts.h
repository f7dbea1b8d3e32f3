// What one rank holds: its stage and its state, its channels, what sums and spreads beside them, and, where validations
// translate, a decoder; reserved in one layout, bound to memory later.
//
// Two programs share the arena (runtime/arena.h): what steps, evaluations and the profile use, gradients and channels'
// buffers included, is scratch that the translation of validation sentences lies over. Weights, moments and the
// checkpoint buffer, which a file's thread reads beside either, last.
// Thread safety: one thread.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/purpose.h"
#include "pipeline/channels.h"
#include "pipeline/decode/decoder_parts.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/process_grid.h"
#include "pipeline/replica_reduction.h"
#include "pipeline/stage.h"
#include "pipeline/stage_state.h"
#include "pipeline/tied_tables.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

struct RankParts {
  // Adds everything up in `layout`, which is all that `hadal plan` needs. `plan` and `pipeline`, the rank's replica's,
  // must outlive the object.
  RankParts(const ModelPlan& plan, const PipelinePlan& pipeline, int stage, const Stream& stream, Purpose purpose);
  // `transfers`: over whose communicators what kernels work on goes; `host`: the host's. Both, and `trace`, must
  // outlive the object.
  // Errors: ResourceExhausted; those of transfers' room (Communicator::Reserve).
  absl::Status Bind(const Arena& arena, ProcessGrid& transfers, ProcessGrid& host, absl::Duration timeout,
                    TraceBuffer& trace);

  ArenaLayout layout;
  Stage stage;
  StageState state;
  Channels channels;
  TiedTables tied;
  ReplicaReduction reduction;
  std::optional<DecoderParts> decoder;  // of validations, where the plan has one
};

}  // namespace hadal
