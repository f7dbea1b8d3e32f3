// Log-probabilities of given translations, or of plain text by a language model: a full forward of each pair over the
// ranks of a pipeline, without dropout.
//
// A pair's score has the same bits whatever is scored beside it. On the CPU: batches are filled up so that no product
// and no block of logits has fewer than 16 rows. On a GPU, where cuBLASLt chooses how to add by a product's shape:
// every batch is filled up to one size, with rows that belong to no pair, so that there is one product of a kind; as
// long as the algorithm chosen treats all its rows alike.
// Threads: one a rank. Blocking: Score; all ranks call it together.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pipeline/checkpoint/model_checkpoint.h"
#include "pipeline/engine.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/data/corpus.h"

namespace hadal {

struct PairScore {
  double log_probability = 0;  // Σ log p(target token | before, source), </s> counted, natural logarithm
  int64_t tokens = 0;          // target tokens, </s> counted
};

class PairScorer {
 public:
  // Lays the checkpoint's model over the ranks, with batches of up to `batch_tokens` rows a side; on a GPU the target's
  // are rounded up to whole blocks of logits.
  // `checkpoint` must outlive the scorer. Errors: ResourceExhausted, DataLoss. One rank's error is every rank's.
  static absl::StatusOr<std::unique_ptr<PairScorer>> Create(ModelCheckpoint& checkpoint, int32_t batch_tokens,
                                                            const Stream& stream, Communicator& communicator,
                                                            absl::Duration timeout);

  // Longest side of a pair in tokens, </s> not counted.
  int64_t longest_tokens() const;
  // The scores, in the order of `pairs` (the same on every rank), on every rank.
  // REQUIRES: no side longer than longest_tokens(); pairs have a source where the model has an encoder, and only there.
  absl::StatusOr<std::vector<PairScore>> Score(std::span<const SampleView> pairs);

 private:
  PairScorer(ModelCheckpoint& checkpoint, Communicator& communicator, absl::Duration timeout)
      : checkpoint_(checkpoint), communicator_(communicator), timeout_(timeout) {}
  absl::Status Build(int32_t batch_tokens, const Stream& stream);

  ModelCheckpoint& checkpoint_;
  Communicator& communicator_;
  absl::Duration timeout_;
  int64_t pair_rows_ = 0;  // of a batch, a side, that pairs may take
  PipelinePlan pipeline_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace hadal
