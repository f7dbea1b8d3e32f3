// DecodeQueue decides which sentences are translated together: longest first, sentences of similar length in one group,
// as many as a lane's cache is expected to hold. The estimate affects time only; no result depends on it.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "pipeline/layout/decode_capacity.h"

namespace hadal {

class DecodeQueue {
 public:
  // source_rows[s]: rows of sentence s, </s> counted; 0: a text of a language model, expected to be as long as it may.
  DecodeQueue(std::vector<int32_t> source_rows, const DecodeCapacity& capacity, const BeamOptions& beam);

  bool empty() const { return waiting_.empty(); }
  // The next group; at least one sentence.  REQUIRES: !empty().
  std::vector<int32_t> Next();
  // Puts a sentence that did not fit back to the front.
  void PutBack(int32_t sentence) { waiting_.push_front(sentence); }

 private:
  // Estimate of the cache rows that a sentence takes, its memory included.
  int64_t ExpectedRows(int32_t sentence) const;

  std::vector<int32_t> source_rows_;
  DecodeCapacity capacity_;
  int32_t beam_;
  bool samples_;  // paths that share little
  int64_t most_sentences_;
  std::deque<int32_t> waiting_;
};

}  // namespace hadal
