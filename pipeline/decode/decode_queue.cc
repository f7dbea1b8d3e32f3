#include "pipeline/decode/decode_queue.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "layers/incremental_sublayer.h"
#include "runtime/check.h"

namespace hadal {

DecodeQueue::DecodeQueue(std::vector<int32_t> source_rows, const DecodeCapacity& capacity, const BeamOptions& beam)
    : source_rows_(std::move(source_rows)), capacity_(capacity), beam_(beam.beam), samples_(beam.sampling) {
  const auto sentences = static_cast<int64_t>(source_rows_.size());
  // Few sentences are spread over the lanes, but not so thinly that steps consist of filling.
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

}  // namespace hadal
