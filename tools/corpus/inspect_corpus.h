// `hadal inspect corpus` prints the size of a prepared corpus and its unigram entropy: the loss of a model that uses no
// context.
//
//   hadal inspect corpus CORPUS [--score PREFIX [--max-sentences N]]
// The unigram entropy of a side, H = −Σ_v p(v) ln p(v) in nats with </s> counted once per sample, is the nll of a model
// that knows only token frequencies. A training run whose validation nll stays near it has not learned to translate.
// Validation sentences may be shorter or simpler than the training text; --score gives the nll of exactly those
// sentences under the training text's frequencies.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/data/corpus.h"

namespace hadal {

// One side of a corpus, with </s>.
struct SideStatistics {
  int64_t tokens = 0;
  int64_t longest = 0;         // tokens of the longest sample
  int64_t distinct = 0;        // number of different tokens
  double unigram_entropy = 0;  // nats a token
};

// Sums in double, in ascending token id.  REQUIRES: corpus.size() > 0; the source's: a corpus with a source
// vocabulary.
// Errors, here and below: DataLoss if a file of a corpus has been changed.
absl::StatusOr<SideStatistics> DescribeSource(const Corpus& corpus);
absl::StatusOr<SideStatistics> DescribeTarget(const Corpus& corpus);

// Returns the mean nll, in nats per target token, of these samples of `text` under the target token frequencies of
// `counted`. Half an occurrence is added for every token of the vocabulary (Krichevsky and Trofimov's estimate), so
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

}  // namespace hadal
