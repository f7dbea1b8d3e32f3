// Decoder translates over a pipeline of ranks: it encodes a group of sentences, then runs beam search or draws samples
// (beam_search.h) step by step with cached keys and values. A language model has nothing to encode: it continues the
// forced beginnings of its texts, which are read token by token.
//
//   rank of the head: search → commands (which tokens, whose paths, which cache rows) → every rank
//   every rank:       border → sublayers against its caches → border … → head: candidates → search
// It uses the weights in place: those of a training engine (validation changes no bit of them) or of a loaded
// checkpoint. Several groups (lanes) are in progress at once, so that a stage has work while another stage computes a
// group's step.
// Numerics: a sentence's hypotheses and scores have the same bits whatever is translated beside it, for every number of
// ranks, lanes, threads and sentences per group, on the CPU with every instruction set (kernels/cpu/product.h).
// On a GPU, cuBLASLt chooses the order of addition by a product's shape; therefore every group and step is padded to
// the capacity. There the same holds for one set of options (beam, longest source, most sentences per group), as long
// as the chosen algorithm treats all rows of a product alike. Log-probabilities agree with an evaluation of the same
// pair up to rounding. On a device, the third and later encodings of groups, and likewise steps, are one launch per
// chunk (graph_cache.h), with the same bits.
// Memory: planned by capacity (decode_capacity.h), in an arena of its own, whose size is bytes(), or in a training
// run's arena. The search itself keeps small vectors.
// Limitations: no continuous batching: a group runs until its last sentence is done. With several chunks per rank, the
// chunks of one command run one after the other.
// Threads: one per rank. Blocking: Translate, which all ranks call together. After any error but InvalidArgument the
// job can only end: communication is closed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/decode/decode_buffers.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/decode/decoder_chunk.h"
#include "pipeline/layout/decode_capacity.h"
#include "runtime/arena.h"
#include "runtime/comm/collectives.h"

namespace hadal {

// DecoderParts holds everything that one rank needs for decoding: the shared buffers, the links to neighbouring ranks,
// and the chunks (ranges of consecutive sublayers) that this rank computes.
//
// The constructor only reserves memory, in the caller's ArenaLayout; Bind then attaches it. A training run that
// translates validation sentences passes its own layout: decoding then uses the same scratch memory as training
// (runtime/arena.h; pipeline/engine/engine.h). A stand-alone Decoder has an arena of its own.
// Memory contents: only the tables of positions persist between translations. The other contents are undefined when a
// translation begins; DecoderChunk::Begin initialises what is read before it is written.
// Thread safety: one thread.
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

// The result for one sentence: best score first, at most `beam` hypotheses. Empty if the model gave only NaN or -inf.
using Translation = std::vector<Hypothesis>;

class Decoder {
 public:
  // Plans and allocates this rank's memory. All references must outlive the decoder; `parameters` hold the weights of
  // this rank's sublayers of `pipeline`. All ranks call it together.
  // Errors: those of MakeDecodeCapacity; ResourceExhausted if any rank lacks the memory.
  static absl::StatusOr<std::unique_ptr<Decoder>> Create(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                         const ParameterStore& parameters, const Stream& stream,
                                                         Communicator& communicator, const DecoderOptions& options,
                                                         absl::Duration timeout);
  // As Create, but uses `parts`, whose memory a training engine has reserved and bound. `parts` must outlive the
  // decoder. Not collective.
  static std::unique_ptr<Decoder> Over(const ModelPlan& plan, const ParameterStore& parameters, const Stream& stream,
                                       Communicator& communicator, DecoderParts& parts, absl::Duration timeout);

  // Translates `sources` (token ids without </s>, the same on every rank). Every rank returns the results, in the same
  // order. `update`: number of updates applied to the weights, which selects the branch gain (BranchNorm); at least 1
  // is used. `starts`: the start of each output; empty: no forced tokens, and OutputStart::number, by which sampling
  // draws, is s for sources[s]. A language model has no sources: each entry is empty, one for each text. For a speech
  // model, `utterances` has the frames of each utterance, and `sources` as many empty entries; the limit of an
  // utterance is longest_utterance_rows(). `stop`: polled on the rank that searches after each step; once it returns
  // true, what is missing stays empty.
  // Errors: InvalidArgument naming the first source that is longer than its limit or, of a translation model, empty;
  // those of Communicator::Wait.
  // REQUIRES: forced tokens only with DecoderOptions::prefixes, and no more than longest_output_tokens().
  absl::StatusOr<std::vector<Translation>> Translate(std::span<const std::vector<int32_t>> sources, int64_t update,
                                                     std::span<const OutputStart> starts = {},
                                                     std::span<const std::span<const float>> utterances = {},
                                                     const std::function<bool()>& stop = {});

  // The longest source, in tokens without </s>, and the longest utterance, in rows of the encoder (without </s>).
  int64_t longest_source_tokens() const { return capacity().longest_source - 1; }
  int64_t longest_utterance_rows() const { return capacity().longest_source; }
  // Tokens of the longest output for a source of `source_tokens` tokens.
  int64_t longest_output_tokens(int64_t source_tokens) const {
    return LongestTranslation(parts_.options.beam, source_tokens + (plan_.options.has_encoder() ? 1 : 0),
                              plan_.options.max_positions);
  }
  const DecodeCapacity& capacity() const { return parts_.capacity; }
  // Bytes of the decoder's own arena on this rank.
  int64_t bytes() const { return arena_.bytes(); }

 private:
  Decoder(const ModelPlan& plan, const ParameterStore& parameters, const Stream& stream, Communicator& communicator,
          DecoderParts& parts, absl::Duration timeout);

  // An utterance's source is its number, in each of its rows.
  absl::StatusOr<std::vector<std::vector<int32_t>>> SourcesOf(std::span<const std::span<const float>> utterances) const;
  absl::StatusOr<std::vector<std::vector<int32_t>>> WithEnds(std::span<const std::vector<int32_t>> sources) const;
  // On the searching rank: sends commands and executes them until every sentence is done or `stop` returns true.
  absl::Status Search(std::span<const std::vector<int32_t>> sources, std::span<const OutputStart> starts,
                      const std::function<bool()>& stop, std::vector<Translation>& translations);
  // On the others: executes commands until kEnd.
  absl::Status Follow();
  absl::Status Execute(const DecodeCommand& command);
  absl::Status Encode(int32_t lane);
  absl::Status Step(int32_t lane);

  const ModelPlan& plan_;
  const ParameterStore& parameters_;
  const Stream stream_;
  Communicator& communicator_;
  Collectives collectives_;
  // Used if the decoder has memory of its own.
  std::unique_ptr<DecoderParts> own_parts_;
  DecoderParts& parts_;
  std::vector<DecodeLane> lanes_;
  Arena arena_;
  std::function<void()> progress_;
  int64_t update_ = 1;
  std::span<const std::span<const float>> utterances_;  // while Translate runs
};

}  // namespace hadal
