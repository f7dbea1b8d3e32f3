#include "pipeline/decode/decode_driver.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "layers/incremental_sublayer.h"
#include "runtime/check.h"

namespace hadal {

DecodeQueue::DecodeQueue(std::vector<int32_t> source_rows, const DecodeCapacity& capacity, const BeamOptions& beam)
    : source_rows_(std::move(source_rows)), capacity_(capacity), beam_(beam.beam), samples_(beam.sampling) {
  const auto sentences = static_cast<int64_t>(source_rows_.size());
  // Few sentences are spread over the lanes, but not so thinly that a step's time is that of reading the weights.
  const int64_t share = (sentences + capacity.lanes - 1) / capacity.lanes;
  most_sentences_ = std::clamp<int64_t>(share, std::min<int64_t>(capacity.sentences, kFewestDecodeRows / beam_ + 1),
                                        capacity.sentences);
  waiting_.resize(sentences);
  std::iota(waiting_.begin(), waiting_.end(), 0);
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [this](int32_t a, int32_t b) { return source_rows_[a] > source_rows_[b]; });
}

int64_t DecodeQueue::ExpectedRows(int32_t sentence) const {
  const int64_t source = source_rows_[sentence];
  const int64_t longest = capacity_.longest_path;
  const int64_t path = source == 0 ? longest : std::min(source + source / 2 + 8, longest);
  return source + (samples_ ? beam_ * path : std::min(path + 6 * beam_, beam_ * longest));
}

std::vector<int32_t> DecodeQueue::Next() {
  HADAL_CHECK(!empty());
  std::vector<int32_t> group;
  int64_t source_rows = 0, cache_rows = 1;
  while (!waiting_.empty() && static_cast<int64_t>(group.size()) < most_sentences_) {
    const int32_t next = waiting_.front();
    source_rows += source_rows_[next];
    cache_rows += ExpectedRows(next);
    const bool fits = source_rows <= capacity_.source_rows && cache_rows <= capacity_.cache_rows;
    if (!fits && !group.empty()) break;
    group.push_back(next);
    waiting_.pop_front();
  }
  return group;
}

namespace {

std::vector<int32_t> RowsOf(std::span<const std::vector<int32_t>> sources) {
  std::vector<int32_t> rows;
  for (const std::vector<int32_t>& source : sources) rows.push_back(static_cast<int32_t>(source.size()));
  return rows;
}

}  // namespace

DecodeDriver::DecodeDriver(const DecodeCapacity& capacity, const BeamOptions& beam, int64_t max_positions,
                           std::span<const std::vector<int32_t>> sources,
                           std::span<std::vector<Hypothesis>> translations, std::span<const OutputStart> starts)
    : sources_(sources), starts_(starts), translations_(translations), queue_(RowsOf(sources), capacity, beam) {
  for (int32_t lane = 0; lane < capacity.lanes; ++lane) groups_.emplace_back(capacity, beam, max_positions, lane);
}

void DecodeDriver::Settle(std::vector<DecodeGroup::Left>& left) {
  for (DecodeGroup::Left& sentence : left) {
    if (sentence.finished) {
      translations_[sentence.sentence] = std::move(sentence.hypotheses);
    } else {
      queue_.PutBack(sentence.sentence);
    }
  }
}

std::vector<DecodeCommand> DecodeDriver::Next(int32_t lane) {
  DecodeGroup& group = groups_[lane];
  std::vector<DecodeCommand> commands;
  if (group.idle()) {
    if (queue_.empty()) return commands;
    commands.push_back(group.Start(queue_.Next(), sources_, starts_));
  }
  std::vector<DecodeGroup::Left> left;
  commands.push_back(group.Step(left));
  Settle(left);
  return commands;
}

void DecodeDriver::Advance(int32_t lane, const CandidateTable& table) {
  std::vector<DecodeGroup::Left> left;
  groups_[lane].Advance(table, left);
  Settle(left);
}

}  // namespace hadal
