#include "kernels/cpu/operations.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/cross_entropy.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Sums over a row of logits.
struct RowSums {
  float maximum;
  float exponentials;  // Σ_v e^(z_v − maximum)
  double logits;       // Σ_v z_v
};

// The same per lane; lanes are combined at the end of the row.
struct LaneSums {
  Vec maximum, exponentials, logits;
};

// Adds kVectors vectors. The running sum is rescaled once for all of them, which takes 1 + 1/kVectors exponentials per
// element. Their own sum is computed first, which makes the chain of roundings kVectors times shorter.
template <int kVectors>
HWY_INLINE void AddBlock(const Vec (&z)[kVectors], LaneSums& sums) {
  const Tag d;
  Vec maximum = sums.maximum;
  for (int v = 0; v < kVectors; ++v) maximum = hn::Max(maximum, z[v]);
  Vec exponentials = Exp(d, hn::Sub(z[0], maximum));
  Vec logits = z[0];
  for (int v = 1; v < kVectors; ++v) {
    exponentials = hn::Add(exponentials, Exp(d, hn::Sub(z[v], maximum)));
    logits = hn::Add(logits, z[v]);
  }
  sums.exponentials = hn::MulAdd(sums.exponentials, Exp(d, hn::Sub(sums.maximum, maximum)), exponentials);
  sums.maximum = maximum;
  sums.logits = hn::Add(sums.logits, logits);
}

HWY_INLINE RowSums CombineLanes(const LaneSums& sums) {
  const Tag d;
  const Vec maximum = hn::MaxOfLanes(d, sums.maximum);
  const Vec exponentials = hn::Mul(sums.exponentials, Exp(d, hn::Sub(sums.maximum, maximum)));
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
  hn::Store(sums.logits, d, lanes);
  double logits = 0;
  for (size_t i = 0; i < hn::Lanes(d); ++i) logits += lanes[i];
  return {hn::GetLane(maximum), hn::GetLane(hn::SumOfLanes(d, exponentials)), logits};
}

RowSums SumRow(const float* HWY_RESTRICT z, int64_t columns) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  constexpr int kVectors = 8;
  // The lowest finite number, not -inf: a difference of two infinities would be NaN.
  LaneSums sums = {hn::Set(d, kLowest), hn::Zero(d), hn::Zero(d)};
  int64_t j = 0;
  for (; j + kVectors * lanes <= columns; j += kVectors * lanes) {
    Vec block[kVectors];
    for (int v = 0; v < kVectors; ++v) block[v] = hn::LoadU(d, z + j + v * lanes);
    AddBlock(block, sums);
  }
  for (; j + lanes <= columns; j += lanes) {
    const Vec block[1] = {hn::LoadU(d, z + j)};
    AddBlock(block, sums);
  }
  if (j == columns) return CombineLanes(sums);
  const Vec block[1] = {LoadPartial(d, z + j, columns - j, -kInfinity)};
  const Vec logits = hn::Add(sums.logits, LoadPartial(d, z + j, columns - j, 0.0f));
  AddBlock(block, sums);
  sums.logits = logits;
  return CombineLanes(sums);
}

// z_v = scale · e^(z_v − maximum) − shift
void WriteGradient(float maximum, float scale, float shift, float* HWY_RESTRICT z, int64_t columns) {
  const Tag d;
  const int64_t lanes = hn::Lanes(d);
  const auto gradient = [&](Vec logits) HWY_ATTR {
    return hn::MulSub(Exp(d, hn::Sub(logits, hn::Set(d, maximum))), hn::Set(d, scale), hn::Set(d, shift));
  };
  int64_t j = 0;
  for (; j + lanes <= columns; j += lanes) hn::StoreU(gradient(hn::LoadU(d, z + j)), d, z + j);
  if (j == columns) return;
  StorePartial(d, gradient(LoadPartial(d, z + j, columns - j, maximum)), z + j, columns - j);
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
    const double log_sum_exp = sums.maximum + std::log(double{sums.exponentials});
    const double nll = log_sum_exp - z[target];
    const double smooth = smoothing == 0 ? 0 : static_cast<double>(columns) * log_sum_exp - sums.logits;
    args.nll[i] = static_cast<float>(nll);
    args.loss[i] = static_cast<float>(target_weight * nll + share * smooth);
    if (args.gradient_scale == 0) continue;
    const double scale = args.gradient_scale;
    WriteGradient(sums.maximum, static_cast<float>(scale / sums.exponentials), static_cast<float>(scale * share), z,
                  columns);
    z[target] -= static_cast<float>(scale * target_weight);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(CrossEntropyKernel);

void cpu::CrossEntropy(const Stream& stream, const CrossEntropyArgs& args) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(CrossEntropyKernel);
  stream.ForRanges(args.logits.rows, /*grain=*/1, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

}  // namespace hadal

#endif  // HWY_ONCE
