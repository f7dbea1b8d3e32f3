// `hadal inspect corpus` prints the size of a prepared corpus and its unigram entropy, the loss of a model that uses no
// context. `hadal inspect batch` prints the token ids of a given step, and their text:
//
//   hadal inspect corpus CORPUS [--score PREFIX [--max-sentences N]]
//   hadal inspect batch CORPUS --step N [--seed S] [--micro-batches M] [--source-tokens N] [--target-tokens N]
//   [--max-positions N] [--sampling-temperature T…]
// With the values of a run's config, `batch` prints exactly the trainer's batches (runtime/data/sampling_order.h),
// which depend on seed and step alone. So a failed step can be examined without training up to it.
// The unigram entropy of a side, H = −Σ_v p(v) ln p(v) in nats with </s> counted once per sample, is the nll of a model
// that predicts by token frequencies alone. A training run whose validation nll stays near H has not learned to
// translate. Validation sentences may be shorter or simpler than the training text; --score gives the nll of exactly
// those sentences under the training text's frequencies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"

namespace hadal {

// Numbers of one side of a corpus, with </s>.
struct SideStatistics {
  int64_t tokens = 0;
  int64_t longest = 0;         // tokens of the longest sample
  int64_t distinct = 0;        // number of different tokens
  double unigram_entropy = 0;  // nats per token
};

// Sums in double, in ascending token id.  REQUIRES: corpus.size() > 0; of DescribeSource: the corpus has a source
// vocabulary. Errors of these and of UnigramNll: DataLoss if a file of a corpus has been changed.
absl::StatusOr<SideStatistics> DescribeSource(const Corpus& corpus);
absl::StatusOr<SideStatistics> DescribeTarget(const Corpus& corpus);

// Returns the mean nll, in nats per target token, of the samples `samples` of `text` under the target token frequencies
// of `counted`. Half an occurrence is added for every token of the vocabulary (Krichevsky and Trofimov's estimate), so
// that unseen tokens have a probability.  REQUIRES: both corpora have the same vocabulary; `counted` and `samples` are
// not empty.
absl::StatusOr<double> UnigramNll(const Corpus& counted, const Corpus& text, std::span<const int64_t> samples);

struct InspectCorpusOptions {
  std::string data;           // prefix of a prepared corpus
  std::string score;          // prefix of the corpus whose targets are scored; empty: none
  int64_t max_sentences = 0;  // of `score`, as in validation.max_sentences; 0: all
};

// Prints one line per side, and the score. Errors: those of opening the corpora; InvalidArgument if one is empty or
// their vocabularies differ.
absl::Status RunInspectCorpus(const InspectCorpusOptions& options, std::ostream& out);

struct InspectBatchOptions {
  std::string data;  // prefix of a prepared corpus
  int64_t step = 1;  // from 1. REQUIRES: ≥ 1
  uint64_t seed = 1;
  int32_t micro_batches = 4;
  int64_t source_tokens = 1024;  // capacities of a micro-batch, with </s>
  int64_t target_tokens = 1024;
  int64_t max_positions = 1024;      // the model's: longest side of a sentence, with </s>
  std::vector<double> temperatures;  // data.sampling_temperature
  int64_t max_sentences = 0;         // sentences printed per micro-batch; 0: all
  bool ids_only = false;             // prints no text and needs no vocabulary files
};

// Prints the step. Errors: those of opening the corpus and its vocabularies; InvalidArgument for
// capacities that no sentence fits.
absl::Status RunInspectBatch(const InspectBatchOptions& options, std::ostream& out);

}  // namespace hadal
