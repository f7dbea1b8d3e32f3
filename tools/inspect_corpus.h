// `hadal inspect corpus`: what a prepared corpus holds, and the loss that says nothing was learned from context.
//
//   hadal inspect corpus --data PREFIX
// The unigram entropy of a side, H = −Σ_v p(v) ln p(v) in nats with </s> counted once a sample, is the nll of a model that knows
// how frequent tokens are and nothing else: a training run whose validation nll stays near it has learned no translation.
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

// Sums in double, in ascending token id.  REQUIRES: corpus.size() > 0.
SideStatistics DescribeSource(const Corpus& corpus);
SideStatistics DescribeTarget(const Corpus& corpus);

// Prints a line a side. Errors: those of opening the corpus; InvalidArgument where it is empty.
absl::Status RunInspectCorpus(const std::string& prefix, std::ostream& out);

}  // namespace hadal
