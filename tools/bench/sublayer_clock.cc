#include "tools/bench/sublayer_clock.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal {

SublayerClock::SublayerClock(const ModelPlan& plan, int32_t recompute_every)
    : read_([this] { times_.push_back(MonotonicSeconds()); }), seconds_(plan.sublayers.size()) {
  if (plan.source_embedding() >= 0) AddPart(plan.source_embedding());
  AddSegments(1, plan.encoder_end(), recompute_every, plan);
  if (plan.options.has_decoder()) {
    AddPart(plan.target_embedding());
    AddSegments(plan.target_embedding() + 1, plan.output_head(), recompute_every, plan);
  }
  AddPart(plan.output_head());
  std::reverse(backward_.begin(), backward_.end());
}

void SublayerClock::AddPart(int32_t sublayer) {
  forward_.push_back({sublayer, &SublayerSeconds::forward});
  backward_.push_back({sublayer, &SublayerSeconds::backward});
}

// A segment calls the hook after each of its sublayers and once at its end; backward_ is built from its end. A stack
// that combines its layers has one segment a layer; one that does so, reads blocks or has a second stream has a part
// behind the last segment.
void SublayerClock::AddSegments(int32_t first, int32_t last, int32_t recompute_every, const ModelPlan& plan) {
  const bool combines = first < last && plan.Combines(plan.sublayers[first].stack);
  const int32_t length = combines ? 1 : recompute_every > 0 ? recompute_every : std::max(last - first, 1);
  for (int32_t begin = first, end = first; begin < last; begin = end) {
    end = plan.SegmentEnd(begin, length, last);
    backward_.push_back({begin, &SublayerSeconds::backward});
    for (int32_t s = begin; s < end; ++s) {
      forward_.push_back({s, &SublayerSeconds::forward});
      backward_.push_back({s, &SublayerSeconds::backward});
    }
    forward_.push_back({end - 1, &SublayerSeconds::forward});
    for (int32_t s = end - 1; recompute_every > 0 && s >= begin; --s) {
      backward_.push_back({s, &SublayerSeconds::recompute});
    }
  }
  if (first >= last) return;
  const Stack stack = plan.sublayers[first].stack;
  if (plan.KeepsHistory(stack) || plan.HasSecondStream(stack)) AddPart(last - 1);
}

void SublayerClock::Begin(const std::vector<Mark>& marks) {
  marks_ = &marks;
  times_.assign(1, MonotonicSeconds());
}

void SublayerClock::End() {
  HADAL_CHECK_EQ(times_.size(), marks_->size() + 1);
  for (size_t i = 0; i < marks_->size(); ++i) {
    seconds_[(*marks_)[i].sublayer].*(*marks_)[i].part += times_[i + 1] - times_[i];
  }
}

void SublayerClock::Reset() { std::fill(seconds_.begin(), seconds_.end(), SublayerSeconds()); }

}  // namespace hadal
