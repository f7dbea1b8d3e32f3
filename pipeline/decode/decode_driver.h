// DecodeDriver controls beam search on the rank of the output head: it creates the next command of each lane and
// collects the translations.
//
// A lane is one of several independent groups of sentences that are decoded at the same time, so that all pipeline
// stages have work (decode_group.h). Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "pipeline/decode/decode_group.h"
#include "pipeline/layout/decode_capacity.h"

namespace hadal {

// DecodeQueue decides which sentences are translated together: longest first, sentences of similar length in one group,
// as many as a lane's cache is expected to hold. The estimate affects time only; no result depends on it.
// Thread safety: one thread.
class DecodeQueue {
 public:
  // source_rows[s]: rows of sentence s, </s> counted; 0: a text of a language model, assumed to have the maximum
  // length.
  DecodeQueue(std::vector<int32_t> source_rows, const DecodeCapacity& capacity, const BeamOptions& beam);

  bool empty() const { return waiting_.empty(); }
  // The next group; at least one sentence.  REQUIRES: !empty().
  std::vector<int32_t> Next();
  // Puts a sentence that did not fit back to the front.
  void PutBack(int32_t sentence) { waiting_.push_front(sentence); }

 private:
  // Estimate of the cache rows that a sentence takes, those of its encoder output included.
  int64_t ExpectedRows(int32_t sentence) const;

  std::vector<int32_t> source_rows_;
  DecodeCapacity capacity_;
  int32_t beam_;
  bool samples_;            // sampling: paths share few cache rows
  int64_t most_sentences_;  // of a group
  std::deque<int32_t> waiting_;
};

class DecodeDriver {
 public:
  // `sources` (with </s>), `starts` (one for each source, or none: DecodeGroup::Start) and `translations` (one for each
  // source, filled as sentences finish) must outlive the driver.
  DecodeDriver(const DecodeCapacity& capacity, const BeamOptions& beam, int64_t max_positions,
               std::span<const std::vector<int32_t>> sources, std::span<std::vector<Hypothesis>> translations,
               std::span<const OutputStart> starts = {});

  // The commands that `lane` executes next: a step, or a new group and its first step. Empty if no sentence is left.
  std::vector<DecodeCommand> Next(int32_t lane);
  // Whether Advance will read CandidateTable::logits of the lane's last step.
  bool WantsLogits(int32_t lane) const { return groups_[lane].WantsLogits(); }
  // Takes the model's output for the lane's last step.
  void Advance(int32_t lane, const CandidateTable& table);

 private:
  void Settle(std::vector<DecodeGroup::Left>& left);

  std::span<const std::vector<int32_t>> sources_;
  std::span<const OutputStart> starts_;
  std::span<std::vector<Hypothesis>> translations_;
  DecodeQueue queue_;
  std::vector<DecodeGroup> groups_;  // [lanes]
};

}  // namespace hadal
