// What decoding holds on a rank: its buffers, links and chunks, reserved in one layout. A training run reserves them in
// its own arena, as a program of its own over training's scratch (engine.h); a Decoder by itself has an arena for them.
// Nothing but the tables of positions lasts: each Translate begins with scratch that holds anything
// (DecoderChunk::Begin). Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "pipeline/decode/decode_blocks.h"
#include "pipeline/decode/decode_capacity.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/decode/decoder_chunk.h"
#include "runtime/arena.h"

namespace hadal {

struct DecoderParts {
  // `stage`: of `pipeline`. `plan` must outlive the object.
  DecoderParts(const ModelPlan& plan, const PipelinePlan& pipeline, int stage, const DecoderOptions& options,
               const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout);
  // `communicator`: the stages'.
  void Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout);

  // What the device's free memory fell by as graphs were made.
  int64_t graph_bytes() const;

  const DecoderOptions options;
  const DecodeCapacity capacity;
  DecodeBuffers buffers;
  DecodeLinks links;
  std::vector<std::unique_ptr<DecoderChunk>> chunks;
  std::optional<DecodeBlocks> blocks;  // on a device
};

}  // namespace hadal
