#include "kernels/cpu/operations.h"

#include <algorithm>
#include <limits>

#include "runtime/math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = FloatTag;
using Vec = FloatVec;

constexpr float kLowest = std::numeric_limits<float>::lowest();

// Sums over a row of logits.
struct RowSums {
  float maximum;
  float exponentials;  // Σ_v e^(z_v − maximum)
  double logits;       // Σ_v z_v
};

// The same of sixteen lanes (kernels/cpu/columns-inl.h): lane l has the columns l, l + 16, l + 32, …
struct LaneSums {
  Vec maximum[PartialSums::kVectors];
  PartialSums exponentials, logits;
};

// Adds kGroups groups of sixteen columns. The running sum is rescaled once for all of them, which takes 1 + 1/kGroups
// exponentials per element. Their own sum is computed first, which makes the chain of roundings kGroups times shorter.
// `load(column)` returns a vector of logits.
template <int kGroups, typename Load>
HWY_INLINE void AddGroups(const Load& load, LaneSums& sums) {
  const Tag d;
#pragma GCC unroll 4
  for (int v = 0; v < PartialSums::kVectors; ++v) {
    Vec maximum = sums.maximum[v];
    const int64_t first = v * static_cast<int64_t>(hn::Lanes(d));
    for (int g = 0; g < kGroups; ++g) maximum = hn::Max(maximum, load(g * kSumLanes + first));
    Vec logits = load(first), exponentials = Exp(d, hn::Sub(logits, maximum));
#pragma GCC unroll 8
    for (int g = 1; g < kGroups; ++g) {
      const Vec z = load(g * kSumLanes + first);
      exponentials = hn::Add(exponentials, Exp(d, hn::Sub(z, maximum)));
      logits = hn::Add(logits, z);
    }
    const Vec rescale = Exp(d, hn::Sub(sums.maximum[v], maximum));
    sums.exponentials.vectors[v] = hn::MulAdd(sums.exponentials.vectors[v], rescale, exponentials);
    sums.logits.vectors[v] = hn::Add(sums.logits.vectors[v], logits);
    sums.maximum[v] = maximum;
  }
}

HWY_INLINE RowSums CombineLanes(LaneSums& sums) {
  const Tag d;
  Vec maximum = sums.maximum[0];
  for (const Vec& m : sums.maximum) maximum = hn::Max(maximum, m);
  maximum = hn::MaxOfLanes(d, maximum);
  double logits = 0;
  for (int v = 0; v < PartialSums::kVectors; ++v) {
    HWY_ALIGN float lanes[hn::MaxLanes(Tag())];
    hn::Store(sums.logits.vectors[v], d, lanes);
    for (const float lane : lanes) logits += lane;
    const Vec rescale = Exp(d, hn::Sub(sums.maximum[v], maximum));
    sums.exponentials.vectors[v] = hn::Mul(sums.exponentials.vectors[v], rescale);
  }
  return {hn::GetLane(maximum), sums.exponentials.Sum(), logits};
}

RowSums SumRow(const float* HWY_RESTRICT z, int64_t columns) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  constexpr int kGroups = 8;
  LaneSums sums;
  sums.exponentials.Clear();
  sums.logits.Clear();
  // The lowest finite number, not -inf: a difference of two infinities would be NaN.
  for (Vec& maximum : sums.maximum) maximum = hn::Set(d, kLowest);
  int64_t j = 0;
  const auto load = [&](int64_t c) HWY_ATTR { return hn::LoadU(d, z + j + c); };
  for (; j + kGroups * kSumLanes <= columns; j += kGroups * kSumLanes) AddGroups<kGroups>(load, sums);
  for (; j + kSumLanes <= columns; j += kSumLanes) AddGroups<1>(load, sums);
  if (j == columns) return CombineLanes(sums);
  const auto load_rest = [&](float fill) HWY_ATTR {
    return [=](int64_t c)
               HWY_ATTR { return LoadPartial(Tag(), z + j + c, std::clamp<int64_t>(columns - j - c, 0, lanes), fill); };
  };
  PartialSums logits = sums.logits;
  for (int v = 0; v < PartialSums::kVectors; ++v) {
    logits.vectors[v] = hn::Add(logits.vectors[v], load_rest(0.0f)(v * lanes));
  }
  AddGroups<1>(load_rest(-std::numeric_limits<float>::infinity()), sums);
  sums.logits = logits;
  return CombineLanes(sums);
}

// z_v = scale · e^(z_v − maximum) − shift
void WriteGradient(float maximum, float scale, float shift, float* HWY_RESTRICT z, int64_t columns) {
  ForColumns(0, columns, [&](auto d, int64_t j) HWY_ATTR {
    const auto e = Exp(d, hn::Sub(hn::LoadU(d, z + j), hn::Set(d, maximum)));
    hn::StoreU(hn::MulSub(e, hn::Set(d, scale), hn::Set(d, shift)), d, z + j);
  });
}

}  // namespace

void CrossEntropyKernel(const CrossEntropyArgs& args, int64_t begin, int64_t end) {
  const int64_t columns = args.logits.columns;
  const double smoothing = args.label_smoothing;
  const double share = smoothing == 0 ? 0 : smoothing / static_cast<double>(columns - 1);  // eps_v
  const double target_weight = 1 - smoothing - share;
  for (int64_t i = begin; i < end; ++i) {
    float* z = args.logits.floats().row(i);
    const int32_t target = args.targets[i];
    const RowSums sums = SumRow(z, columns);
    const double log_sum_exp = sums.maximum + hadal::Log(sums.exponentials);
    const double nll = log_sum_exp - z[target];
    const double smooth = smoothing == 0 ? 0 : static_cast<double>(columns) * log_sum_exp - sums.logits;
    args.nll[i] = static_cast<float>(nll);
    if (!args.hits.empty()) args.hits[i] = z[target] == sums.maximum ? 1.0f : 0.0f;
    args.loss[i] = static_cast<float>(target_weight * nll + share * smooth + args.z_loss * log_sum_exp * log_sum_exp);
    if (args.gradient_scale == 0) continue;
    const double scale = args.gradient_scale;
    const double of_softmax = scale * (1 + 2 * args.z_loss * log_sum_exp);
    WriteGradient(sums.maximum, static_cast<float>(of_softmax / sums.exponentials), static_cast<float>(scale * share),
                  z, columns);
    z[target] -= static_cast<float>(scale * target_weight);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HADAL_RANGE_OPERATION(CrossEntropy, CrossEntropyKernel, args.logits.rows, /*grain=*/1);

}  // namespace hadal

#endif  // HWY_ONCE
