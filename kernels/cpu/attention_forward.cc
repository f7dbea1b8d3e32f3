#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_forward.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/attention_tile-inl.h"
#include "kernels/cpu/exp-inl.h"
#include "kernels/cpu/rotary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = QueryVector::Tag;
using Vec = QueryVector::Vec;

constexpr int64_t kTile = cpu::kAttentionTile;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Returns the maximum over the keys that each query of the vector sees. Four chains: a maximum does not depend on the
// order.
HWY_INLINE Vec MaximumOverKeys(const QueryVector& vector, const float* scores) {
  const Tag d;
  const float* s = scores + vector.column;
  Vec m0 = hn::Set(d, -kInfinity), m1 = m0, m2 = m0, m3 = m0;
  int64_t j = 0;
  const auto look = [&](Vec& maximum) HWY_ATTR {
    const Vec seen = hn::IfThenElse(vector.Sees(j), hn::LoadU(d, s + j * kTile), hn::Set(d, -kInfinity));
    maximum = hn::Max(maximum, seen);
  };
  for (; j < vector.all_from; ++j) look(m0);
  for (; j + 4 <= vector.all_to; j += 4) {
    m0 = hn::Max(m0, hn::LoadU(d, s + (j + 0) * kTile));
    m1 = hn::Max(m1, hn::LoadU(d, s + (j + 1) * kTile));
    m2 = hn::Max(m2, hn::LoadU(d, s + (j + 2) * kTile));
    m3 = hn::Max(m3, hn::LoadU(d, s + (j + 3) * kTile));
  }
  for (; j < vector.all_to; ++j) m0 = hn::Max(m0, hn::LoadU(d, s + j * kTile));
  for (; j < vector.end; ++j) look(m1);
  return hn::Max(hn::Max(m0, m1), hn::Max(m2, m3));
}

// Replaces a vector of queries' scores by e^(score − maximum), times dropout factors. Returns the sums of the
// exponentials before dropout.
HWY_INLINE Vec ExponentialsOverKeys(const AttentionForwardArgs& args, const cpu::AttentionPair& pair,
                                    const AttentionTile& tile, const QueryVector& vector, Vec maximum, float* scores) {
  const Tag d;
  Vec sum = hn::Zero(d);
  const int64_t first_row = pair.first_query + tile.first_query + vector.column;
  const auto body = [&](int64_t j, const float* factor, bool masked) HWY_ATTR __attribute__((always_inline)) {
    float* s = scores + j * kTile + vector.column;
    Vec p = Exp2(d, hn::Sub(hn::LoadU(d, s), maximum));
    if (masked) p = hn::IfThenElseZero(vector.Sees(j), p);
    sum = hn::Add(sum, p);
    if (factor != nullptr) p = hn::Mul(p, hn::LoadU(d, factor));
    hn::StoreU(p, d, s);
  };
  ForKeys(vector, args.dropout, first_row, args.shape.heads, pair.head, body);
  return sum;
}

// Softmax down the columns without the division; the output is divided instead. Stores for the tile's queries 1/sum and
// the natural logarithm of the sum of exponentials.
void SoftmaxOverKeys(const AttentionForwardArgs& args, const cpu::AttentionPair& pair, const AttentionTile& tile,
                     float* scores, float* reciprocals, float* log_sums) {
  const Tag d;
  for (int64_t column = 0; column < tile.queries; column += hn::Lanes(d)) {
    const QueryVector vector(tile, column);
    const Vec maximum = MaximumOverKeys(vector, scores);
    const Vec sum = ExponentialsOverKeys(args, pair, tile, vector, maximum, scores);
    hn::Store(hn::Div(hn::Set(d, 1.0f), sum), d, reciprocals + column);
    hn::Store(hn::MulAdd(maximum, hn::Set(d, static_cast<float>(kLog2)), Log(d, sum)), d, log_sums + column);
  }
}

// `keys`: of the pair, turned if they turn.
void ForwardTile(const AttentionForwardArgs& args, const cpu::AttentionPair& pair, const AttentionTile& tile,
                 const ConstMatrix& keys, const cpu::AttentionScratchLayout& layout, float* scratch) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  const int64_t width = RoundUpToLanes(head_width);
  const int64_t first_column = pair.head * head_width;
  const int64_t first_row = pair.first_query + tile.first_query;
  const float scale = static_cast<float>(kLog2E / std::sqrt(static_cast<double>(head_width)));

  float* queries_t = scratch + layout.queries_t;
  float* scores = scratch + layout.probabilities;
  float* output = scratch + layout.output;
  ConstMatrix queries = args.q.floats().Rows(first_row, tile.queries).Columns(first_column, head_width);
  if (args.shape.rotary.active()) {
    CopyTile(queries, scratch + layout.queries);
    TurnTile(args.shape.rotary, tile.first_query, false, tile.queries, width, scratch + layout.queries);
    queries = ConstMatrix(scratch + layout.queries, tile.queries, head_width, width);
  }
  TransposeTile(queries, scale, queries_t, kTile);
  MultiplyKeysByQueries(tile, keys.Rows(tile.first_key, tile.keys), queries_t, scores);
  HWY_ALIGN float reciprocals[kTile];
  HWY_ALIGN float log_sums[kTile];
  SoftmaxOverKeys(args, pair, tile, scores, reciprocals, log_sums);
  SumOverKeys(tile, scores, scratch + layout.keys + tile.first_key * width, width, output);
  for (int64_t i = 0; i < tile.queries; ++i) {
    StoreScaledRow(output + i * width, reciprocals[i], args.output.floats().row(first_row + i) + first_column,
                   head_width);
    args.log_sum_exp.row(first_row + i)[pair.head] = log_sums[i];
  }
}

// For queries without a key: the output is 0.
void ForwardWithoutKeys(const AttentionForwardArgs& args, const cpu::AttentionPair& pair) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  for (int64_t i = pair.first_query; i < pair.first_query + pair.queries; ++i) {
    std::fill_n(args.output.floats().row(i) + pair.head * head_width, head_width, 0.0f);
    args.log_sum_exp.row(i)[pair.head] = -kInfinity;
  }
}

// The keys of a unit: in place, or turned in the scratch.
ConstMatrix KeysOf(const AttentionForwardArgs& args, const cpu::AttentionPair& pair, int64_t head_width, float* place) {
  const ConstMatrix keys =
      args.k.floats().Rows(pair.first_key, pair.keys).Columns(pair.key_head * head_width, head_width);
  if (!args.shape.rotary.active()) return keys;
  const int64_t width = RoundUpToLanes(head_width);
  CopyTile(keys, place);
  TurnTile(args.shape.rotary, 0, false, pair.keys, width, place);
  return {place, pair.keys, head_width, width};
}

}  // namespace

void AttentionForwardKernel(const AttentionForwardArgs& args, const cpu::AttentionScratchLayout& layout, int thread,
                            int threads, float* scratch) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  cpu::ForOwnPairs(args.shape, thread, threads, [&](const cpu::AttentionPair& unit) HWY_ATTR {
    ConstMatrix keys;
    if (unit.keys > 0) {
      CopyTile(args.v.floats().Rows(unit.first_key, unit.keys).Columns(unit.key_head * head_width, head_width),
               scratch + layout.keys);
      keys = KeysOf(args, unit, head_width, scratch + layout.d_keys);
    }
    cpu::ForHeadsOfUnit(args.shape, unit, [&](const cpu::AttentionPair& pair) HWY_ATTR {
      if (pair.keys == 0) return ForwardWithoutKeys(args, pair);
      for (int64_t first = 0; first < pair.queries; first += kTile) {
        ForwardTile(args, pair, AttentionTile(pair, first, args.shape), keys, layout, scratch);
      }
    });
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(AttentionForwardKernel);

void cpu::AttentionForward(const Stream& stream, const AttentionForwardArgs& args) {
  const AttentionScratchLayout layout(MaxLength(args.shape), args.q.columns / args.shape.heads);
  const auto kernel = HWY_DYNAMIC_DISPATCH(AttentionForwardKernel);
  stream.Run(
      [&](int thread) { kernel(args, layout, thread, stream.threads(), ThreadScratch(args.scratch, thread, layout)); });
}

}  // namespace hadal

#endif  // HWY_ONCE
