#include "kernels/cpu/operations.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/top_candidates.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr float kBelowAll = -std::numeric_limits<float>::infinity();

// The best tokens of one row so far, in descending order of `logits`: tokens[0 … used).
struct Best {
  const float* logits;
  int32_t* tokens;
  int64_t capacity;
  int64_t used = 0;

  // A logit must exceed this to enter. Columns arrive in ascending order, so of equal logits the earlier column stays.
  float threshold() const { return used < capacity ? kBelowAll : logits[tokens[used - 1]]; }

  void Insert(int32_t token) {
    const float value = logits[token];
    const bool enters = used < capacity ? value == value : value > threshold();
    if (!enters) return;
    int64_t at = used < capacity ? used++ : capacity - 1;
    for (; at > 0 && logits[tokens[at - 1]] < value; --at) tokens[at] = tokens[at - 1];
    tokens[at] = token;
  }
};

void SearchRow(const float* HWY_RESTRICT logits, int64_t columns, int32_t* HWY_RESTRICT tokens, int64_t capacity) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  Best best{logits, tokens, capacity};
  int64_t v = 0;
  for (; v < columns && best.used < capacity; ++v) best.Insert(static_cast<int32_t>(v));
  for (; v + lanes <= columns; v += lanes) {
    if (hn::AllFalse(d, hn::Gt(hn::LoadU(d, logits + v), hn::Set(d, best.threshold())))) continue;
    for (int64_t lane = v; lane < v + lanes; ++lane) best.Insert(static_cast<int32_t>(lane));
  }
  for (; v < columns; ++v) best.Insert(static_cast<int32_t>(v));
  for (int64_t k = best.used; k < capacity; ++k) tokens[k] = -1;
}

}  // namespace

void TopCandidatesKernel(const TopCandidatesArgs& args, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    const float* const logits = args.logits.row(i);
    const int32_t* const tokens = args.tokens.row(i);
    SearchRow(logits, args.logits.columns, args.tokens.row(i), args.tokens.columns);
    for (int64_t k = 0; k < args.tokens.columns; ++k) {
      args.values.row(i)[k] = tokens[k] >= 0 ? logits[tokens[k]] : kBelowAll;
    }
    args.also_values[i] = logits[args.also];
    args.best[i] = std::max(tokens[0], 0);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HADAL_RANGE_OPERATION(TopCandidates, TopCandidatesKernel, args.logits.rows, /*grain=*/1);

}  // namespace hadal

#endif  // HWY_ONCE
