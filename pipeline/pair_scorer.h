// PairScorer computes log-probabilities of given translations, or of plain text under a language model: a full forward
// of each pair over the ranks of a pipeline, without dropout.
//
// On the CPU a pair's score has the same bits whatever pairs are scored with it. On a GPU, cuBLASLt chooses the order
// of addition by a product's shape; therefore every batch is padded to one size, so that each kind of product has one
// shape, and the same holds if the chosen algorithm treats all rows alike.
// Threads: one per rank. Blocking: Create, Score and ScoreBlocks; all ranks call them together. Errors of Score and
// ScoreBlocks: those of Communicator::Wait.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/engine/engine.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/data/corpus.h"

namespace hadal {

// A block of a stream of text, for a language model: log p(tokens[i] | tokens[0] … tokens[i − 1]), i ≥ 1 + context.
struct TextBlock {
  std::vector<int32_t> tokens;  // the token before the block (</s> where the stream begins), then the block's
  int64_t context = 0;          // how many tokens at the start of the block are not scored
};

struct PairScore {
  double log_probability = 0;  // Σ log p(target token | before, source), with </s>, natural logarithm
  int64_t tokens = 0;          // target tokens, with </s>
};

class PairScorer {
 public:
  // Loads the checkpoint's model over the ranks, for batches of up to `batch_tokens` rows (tokens with </s>) of sources
  // and as many of targets; on a GPU the targets' are rounded up to a multiple of Workspace::LogitRows (chunk_part.h).
  // `timeout`: of each wait for a peer. `checkpoint` must outlive the scorer. Errors, the same on all ranks:
  // InvalidArgument if batch_tokens is below 32; those of Engine::Create and ModelCheckpoint::ReadWeights.
  static absl::StatusOr<std::unique_ptr<PairScorer>> Create(ModelCheckpoint& checkpoint, int32_t batch_tokens,
                                                            const Stream& stream, Communicator& communicator,
                                                            absl::Duration timeout);

  // Longest side of a pair in tokens, without </s>.
  int64_t longest_tokens() const;
  // Returns the scores on every rank, in the order of `pairs` (the same on every rank).
  // REQUIRES: no side longer than longest_tokens(); pairs have a source if and only if the model has an encoder.
  absl::StatusOr<std::vector<PairScore>> Score(std::span<const SampleView> pairs);
  // Returns the scores of blocks of text on every rank, in the order of `blocks` (the same on every rank). If the model
  // was trained on blocks with a document mask, attention and positions begin anew at each document. REQUIRES: a
  // language model; no block of more than longest_tokens() + 1 tokens.
  absl::StatusOr<std::vector<PairScore>> ScoreBlocks(std::span<const TextBlock> blocks);

 private:
  PairScorer(ModelCheckpoint& checkpoint, Communicator& communicator, absl::Duration timeout)
      : checkpoint_(checkpoint), communicator_(communicator), timeout_(timeout) {}
  absl::Status Build(int32_t batch_tokens, const Stream& stream);
  // Returns the nll of all rows of `batches` on every rank.
  absl::StatusOr<std::vector<float>> RowLosses(const std::vector<PackedBatch>& batches);
  // Returns the score of each sample, without its first unscored[sample] rows.
  static std::vector<PairScore> Sum(std::span<const PackedBatch> batches, std::span<const float> row_nll,
                                    std::vector<int64_t> unscored);

  ModelCheckpoint& checkpoint_;
  Communicator& communicator_;
  absl::Duration timeout_;
  int64_t pair_rows_ = 0;  // rows of a batch's sources, and of its targets, that pairs may take
  PipelineLayout pipeline_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace hadal
