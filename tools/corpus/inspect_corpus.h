// `hadal inspect corpus`: what a prepared corpus holds, and the loss that says nothing was learned from context.
//
//   hadal inspect corpus --data PREFIX [--score PREFIX [--max-sentences N]]
// The unigram entropy of a side, H = −Σ_v p(v) ln p(v) in nats with </s> counted once a sample, is the nll of a model
// that knows how frequent tokens are and nothing else: a training run whose validation nll stays near it has learned no
// translation. Validation sentences may be shorter or plainer than the training text, so a curve is held against
// --score: the nll of just those sentences under the training text's frequencies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

#include "absl/status/status.h"
#include "runtime/data/corpus.h"

namespace hadal {

// One side of a corpus; </s> counted.
struct SideStatistics {
  int64_t tokens = 0;
  int64_t longest = 0;         // tokens of the longest sample
  int64_t distinct = 0;        // tokens of the vocabulary that occur
  double unigram_entropy = 0;  // nats a token
};

// Sums in double, in ascending token id.  REQUIRES: corpus.size() > 0; the source's: a corpus that is not monolingual.
SideStatistics DescribeSource(const Corpus& corpus);
SideStatistics DescribeTarget(const Corpus& corpus);

// Mean nll, in nats a target token, of the first `max_samples` samples of `text` (0: all) under the target frequencies
// of `counted`, every token of the vocabulary counted half an occurrence more (Krichevsky and Trofimov's estimate), so
// that unseen ones have a probability.  REQUIRES: one vocabulary; neither is empty.
double UnigramNll(const Corpus& counted, const Corpus& text, int64_t max_samples);

struct InspectCorpusOptions {
  std::string data;           // prefix of a prepared corpus
  std::string score;          // another's whose targets are scored; empty: none
  int64_t max_sentences = 0;  // of `score`, as in validation.max_sentences; 0: all
};

// Prints a line a side, and the score. Errors: those of opening the corpora; InvalidArgument where one is empty or
// their vocabularies differ.
absl::Status RunInspectCorpus(const InspectCorpusOptions& options, std::ostream& out);

}  // namespace hadal
