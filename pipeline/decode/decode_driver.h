// DecodeDriver controls beam search on the rank of the output head: it creates the next command of each lane and
// collects the translations.
//
// A lane is one of several independent groups of sentences that are decoded at the same time, so that all pipeline
// stages have work (DecodeGroup). Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "layers/candidate_head.h"
#include "pipeline/decode/beam_search.h"
#include "pipeline/decode/decode_links.h"
#include "pipeline/layout/decode_capacity.h"

namespace hadal {

// DecodeGroup is the search of one lane: a group of sentences that are encoded together and decoded step by step.
//
// It owns the lane's cache rows: every step it gives one to each live hypothesis, and it frees the rows that no live
// hypothesis uses any more. If a step needs more rows than are free, the last sentence of the group is put back, to be
// translated in a later group; one sentence alone always fits (decode_capacity.h). A sentence's result does not depend
// on its neighbours, so this costs time but changes nothing.
// Thread safety: one thread. Used only on the rank of the output head.
class DecodeGroup {
 public:
  DecodeGroup(const DecodeCapacity& capacity, const BeamOptions& options, int64_t max_positions, int32_t lane);

  // A sentence that left the group.
  struct Left {
    int32_t sentence = 0;  // the number given to Start
    bool finished = true;  // false: put back
    std::vector<Hypothesis> hypotheses;
  };

  // Starts a group of `sentences`; sources[s] are the tokens of sentence s with </s>, and starts[s] begins its output
  // (`starts` empty: no output has a beginning, and OutputStart::number of sentence s is s).
  // REQUIRES: idle(), the sources and beginnings fit the capacity.
  DecodeCommand Start(std::span<const int32_t> sentences, std::span<const std::vector<int32_t>> sources,
                      std::span<const OutputStart> starts = {});
  bool idle() const { return members_.empty(); }
  // Whether the next Advance reads CandidateTable::logits.
  bool WantsLogits() const;

  // Makes the next step; appends sentences that must be put back to `left`.  REQUIRES: !idle().
  DecodeCommand Step(std::vector<Left>& left);
  // Takes the model's output for that step; appends sentences that are done to `left`.
  void Advance(const CandidateTable& table, std::vector<Left>& left);

 private:
  struct Member {
    int32_t sentence = 0;  // the number given to Start
    int32_t index = 0;     // index in the group
    int32_t first_source_row = 0, source_rows = 0;
    BeamSearch search;
    std::vector<std::vector<int32_t>> paths;  // cache rows of each live hypothesis
    int32_t first_row = 0;                    // the sentence's first row in the current step
  };

  void FreeMemory(const Member& member);
  // Updates the paths of the live hypotheses after a step, and frees rows that only dropped ones held.
  void FollowPaths(Member& member);
  void PutBackLast(std::vector<Left>& left);
  int64_t LiveRows() const;

  BeamOptions options_;
  int64_t max_positions_;
  int32_t lane_;
  int64_t cache_rows_;
  std::vector<Member> members_;
  std::vector<int32_t> free_;
  std::vector<int64_t> seen_;  // [cache rows] the last walk that visited the row
  int64_t walk_ = 0;
};

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

  // The commands that `lane` executes next: a step, or a new group and its first step. Empty if no sentence waits; call
  // again after another lane's Advance or Next, which may have put a sentence back.
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
