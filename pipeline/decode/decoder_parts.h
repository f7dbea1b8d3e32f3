// DecoderParts holds everything that one rank needs for decoding: the shared buffers, the links to neighbouring ranks,
// and the chunks (ranges of consecutive sublayers) that this rank computes.
//
// The constructor only reserves memory, in the caller's ArenaLayout; Bind then attaches it. A training run that
// translates validation sentences passes its own layout: decoding then uses the same scratch memory as training
// (runtime/arena.h; pipeline/engine/engine.h). A stand-alone Decoder has an arena of its own.
// Memory contents: only the tables of positions persist between translations. The other contents are undefined when a
// translation begins; DecoderChunk::Begin initialises what is read before it is written.
// Thread safety: one thread.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "pipeline/decode/decode_buffers.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/decode/decoder_chunk.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"

namespace hadal {

struct DecoderParts {
  // `stage`: this rank's stage of `pipeline`. `plan` must outlive the object.
  DecoderParts(const ModelPlan& plan, const PipelineLayout& pipeline, int stage, const DecoderOptions& options,
               const DecodeCapacity& capacity, const Stream& stream, ArenaLayout& layout);
  // `communicator`: of the pipeline's stages. `timeout`: of each wait for a peer.
  void Bind(const Arena& arena, Communicator& communicator, absl::Duration timeout);

  // Device memory of the chunks' recorded graphs (stage/graph_cache.h), measured as the decrease of free memory.
  int64_t graph_bytes() const;

  const DecoderOptions options;
  const DecodeCapacity capacity;
  DecodeBuffers buffers;
  DecodeLinks links;
  std::vector<std::unique_ptr<DecoderChunk>> chunks;
  std::optional<DecodeBlocks> blocks;  // the index tables in device memory; absent on the CPU
};

}  // namespace hadal
