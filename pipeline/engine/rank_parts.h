// RankParts is everything one rank holds: its stage, the stage's state, its channels, tied tables and replica
// reduction, and a decoder where validations translate. All are reserved in one layout and bound to memory later.
//
// Two programs share the arena (runtime/arena.h). What steps, evaluations and the profile use, including gradients and
// the channels' buffers, is scratch; translating validation sentences overwrites it. Weights and moments are lasting,
// and so is the checkpoint buffer, which a file-writing thread reads during either program.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/purpose.h"
#include "pipeline/decode/decoder_parts.h"
#include "pipeline/exchange/channels.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/exchange/replica_reduction.h"
#include "pipeline/exchange/tied_tables.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/stage.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/trace.h"

namespace hadal {

struct RankParts {
  // Reserves everything in `layout`; `hadal plan` needs no more. `plan` and `pipeline` (that of this rank's replica)
  // must outlive the object. `gap_bytes`: ArenaLayout's.
  RankParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, const Stream& stream, Purpose purpose,
            int64_t gap_bytes = 0);
  // `transfers`: communicators for the memory that kernels use; `host`: for host memory. Both and `trace` must outlive
  // the object.
  // Errors: ResourceExhausted; those of Communicator::Reserve.
  absl::Status Bind(const Arena& arena, ProcessGrid& transfers, ProcessGrid& host, absl::Duration timeout,
                    TraceBuffer& trace);

  ArenaLayout layout;
  Stage stage;
  StageState state;
  Channels channels;
  TiedTables tied;
  ReplicaReduction reduction;
  std::optional<DecoderParts> decoder;  // for validations, if the plan has one
};

}  // namespace hadal
