// DecoderParts holds the buffers, links and chunks for decoding on a rank, reserved in one layout. A training run
// reserves them in its own arena, as a second program over training's scratch (engine.h); a stand-alone Decoder has its
// own arena. Only the tables of positions are lasting; each Translate begins with uninitialised scratch
// (DecoderChunk::Begin). Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "pipeline/decode/decode_blocks.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/decode/decoder_chunk.h"
#include "pipeline/plan/decode_capacity.h"
#include "runtime/arena.h"

namespace hadal {

struct DecoderParts {
  // `stage`: in `pipeline`. `plan` must outlive the object.
  DecoderParts(const ModelPlan& plan, const PipelinePlan& pipeline, int stage, const DecoderOptions& options,
               const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout);
  // `communicator`: the pipeline's stages.
  void Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout);

  // Device memory used by the graphs, measured as the decrease of free memory.
  int64_t graph_bytes() const;

  const DecoderOptions options;
  const DecodeCapacity capacity;
  DecodeBuffers buffers;
  DecodeLinks links;
  std::vector<std::unique_ptr<DecoderChunk>> chunks;
  std::optional<DecodeBlocks> blocks;  // on a device
};

}  // namespace hadal
