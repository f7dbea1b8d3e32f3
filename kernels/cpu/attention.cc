#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/operations.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
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

// ---- Forward ----

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

// ---- Backward ----

// The three keys-by-queries matrices of a tile, transposed, stride kTile.
struct TileMatrices {
  float* probabilities;  // first scores, then P
  float* dropped;        // dropout(P); unused without dropout
  float* d_scores;       // gradient of dropout(P), then of P, finally of the scores
};

// P = 2^(scores − log2 sum), dropout(P), dP = dropout's factors ∘ d dropout(P). Returns delta = Σ_j P_j·(dP_j −
// reference) / Σ_j P_j.
HWY_INLINE Vec ProbabilitiesOverKeys(const AttentionBackwardArgs& args, const cpu::AttentionPair& pair,
                                     const AttentionTile& tile, const QueryVector& vector, Vec log2_sum, Vec reference,
                                     const TileMatrices& m) {
  const Tag d;
  Vec delta = hn::Zero(d);
  Vec sum = hn::Zero(d);
  const int64_t first_row = pair.first_query + tile.first_query + vector.column;
  const auto body = [&](int64_t j, const float* factor, bool masked) HWY_ATTR __attribute__((always_inline)) {
    const int64_t at = j * kTile + vector.column;
    Vec p = Exp2(d, hn::Sub(hn::LoadU(d, m.probabilities + at), log2_sum));
    if (masked) p = hn::IfThenElseZero(vector.Sees(j), p);
    Vec dp = hn::LoadU(d, m.d_scores + at);
    if (factor != nullptr) {
      hn::StoreU(hn::Mul(p, hn::LoadU(d, factor)), d, m.dropped + at);
      dp = hn::Mul(dp, hn::LoadU(d, factor));
      hn::StoreU(dp, d, m.d_scores + at);
    }
    delta = hn::MulAdd(p, hn::Sub(dp, reference), delta);
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, m.probabilities + at);
  };
  ForKeys(vector, args.dropout, first_row, args.shape.heads, pair.head, body);
  // Padding has a sum of 0.
  return hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), delta, hn::Div(delta, sum));
}

// dS = P ∘ ((dP − reference) − delta). Any reference gives the same gradient. With the first key's, the differences are
// small, and nearly exact, if a sentence's tokens are alike (attention.md).
void BackwardOfSoftmax(const AttentionBackwardArgs& args, const cpu::AttentionPair& pair, const AttentionTile& tile,
                       const TileMatrices& m) {
  const Tag d;
  HWY_ALIGN float log2_sums[kTile];
  std::fill_n(log2_sums, kTile, kInfinity);  // padding: probability 0
  for (int64_t i = 0; i < tile.queries; ++i) {
    log2_sums[i] =
        static_cast<float>(kLog2E) * args.log_sum_exp.row(pair.first_query + tile.first_query + i)[pair.head];
  }
  for (int64_t column = 0; column < tile.queries; column += hn::Lanes(d)) {
    const QueryVector vector(tile, column);
    const Vec reference = hn::LoadU(d, m.d_scores + column);  // key 0; without a window every query sees it
    const Vec delta = ProbabilitiesOverKeys(args, pair, tile, vector, hn::Load(d, log2_sums + column), reference, m);
    for (int64_t at = column; at < vector.end * kTile; at += kTile) {
      const Vec p = hn::LoadU(d, m.probabilities + at);
      const Vec difference = hn::Sub(hn::LoadU(d, m.d_scores + at), reference);
      hn::StoreU(hn::Mul(p, hn::Sub(difference, delta)), d, m.d_scores + at);
    }
  }
}

void BackwardTile(const AttentionBackwardArgs& args, const cpu::AttentionPair& pair, const AttentionTile& tile,
                  const cpu::AttentionScratchLayout& layout, float* scratch) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  const int64_t width = RoundUpToLanes(head_width);
  const int64_t first_column = pair.head * head_width;
  const int64_t first_row = pair.first_query + tile.first_query;
  const double scale = 1 / std::sqrt(static_cast<double>(head_width));
  const auto queries_of = [&](const ConstMatrix& x) {
    return x.Rows(first_row, tile.queries).Columns(first_column, head_width);
  };
  const auto keys_of = [&](const ConstMatrix& x) {
    return x.Rows(pair.first_key + tile.first_key, tile.keys).Columns(pair.key_head * head_width, head_width);
  };
  const Rotary& rotary = args.shape.rotary;
  const int64_t skipped = tile.first_key * width;
  const ConstMatrix turned_keys(scratch + layout.keys + skipped, tile.keys, head_width, width);
  const TileMatrices m = {scratch + layout.probabilities, scratch + layout.dropped, scratch + layout.d_scores};

  CopyTile(queries_of(args.q.floats()), scratch + layout.queries);
  TurnTile(rotary, tile.first_query, false, tile.queries, width, scratch + layout.queries);
  TransposeTile(ConstMatrix(scratch + layout.queries, tile.queries, head_width, width),
                static_cast<float>(kLog2E * scale), scratch + layout.queries_t, kTile);
  MultiplyKeysByQueries(tile, rotary.active() ? turned_keys : keys_of(args.k.floats()), scratch + layout.queries_t,
                        m.probabilities);
  TransposeTile(queries_of(args.d_output.floats()), 1.0f, scratch + layout.d_output_t, kTile);
  MultiplyKeysByQueries(tile, keys_of(args.v.floats()), scratch + layout.d_output_t, m.d_scores);
  BackwardOfSoftmax(args, pair, tile, m);

  CopyTile(queries_of(args.d_output.floats()), scratch + layout.d_output);
  AddSumOverQueries(tile, args.dropout.active() ? m.dropped : m.probabilities, scratch + layout.d_output, width,
                    scratch + layout.d_values + skipped);
  AddSumOverQueries(tile, m.d_scores, scratch + layout.queries, width, scratch + layout.d_keys + skipped);
  float* d_queries = scratch + layout.output;
  SumOverKeys(tile, m.d_scores, scratch + layout.keys + skipped, width, d_queries);
  TurnTile(rotary, tile.first_query, true, tile.queries, width, d_queries);
  for (int64_t i = 0; i < tile.queries; ++i) {
    StoreScaledRow(d_queries + i * width, static_cast<float>(scale),
                   args.d_q.floats().row(first_row + i) + first_column, head_width);
  }
}

void BackwardUnit(const AttentionBackwardArgs& args, const cpu::AttentionPair& unit,
                  const cpu::AttentionScratchLayout& layout, float* scratch) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  const int64_t width = RoundUpToLanes(head_width);
  const int64_t first_column = unit.key_head * head_width;
  float* d_keys = scratch + layout.d_keys;
  float* d_values = scratch + layout.d_values;
  CopyTile(args.k.floats().Rows(unit.first_key, unit.keys).Columns(first_column, head_width), scratch + layout.keys);
  TurnTile(args.shape.rotary, 0, false, unit.keys, width, scratch + layout.keys);
  std::fill_n(d_keys, unit.keys * width, 0.0f);
  std::fill_n(d_values, unit.keys * width, 0.0f);
  cpu::ForHeadsOfUnit(args.shape, unit, [&](const cpu::AttentionPair& pair) HWY_ATTR {
    for (int64_t first = 0; first < pair.queries; first += kTile) {
      BackwardTile(args, pair, AttentionTile(pair, first, args.shape), layout, scratch);
    }
  });
  TurnTile(args.shape.rotary, 0, true, unit.keys, width, d_keys);
  const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_width)));
  for (int64_t j = 0; j < unit.keys; ++j) {
    StoreScaledRow(d_keys + j * width, scale, args.d_k.floats().row(unit.first_key + j) + first_column, head_width);
    StoreScaledRow(d_values + j * width, 1.0f, args.d_v.floats().row(unit.first_key + j) + first_column, head_width);
  }
}

// For queries without a key: no gradient.
void BackwardWithoutKeys(const AttentionBackwardArgs& args, const cpu::AttentionPair& unit) {
  const int64_t head_width = args.q.columns / args.shape.heads;
  for (int64_t i = unit.first_query; i < unit.first_query + unit.queries; ++i) {
    std::fill_n(args.d_q.floats().row(i) + unit.head * head_width, args.shape.group * head_width, 0.0f);
  }
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

void AttentionBackwardKernel(const AttentionBackwardArgs& args, const cpu::AttentionScratchLayout& layout, int thread,
                             int threads, float* scratch) {
  cpu::ForOwnPairs(args.shape, thread, threads, [&](const cpu::AttentionPair& unit) HWY_ATTR {
    if (unit.keys == 0) return BackwardWithoutKeys(args, unit);
    BackwardUnit(args, unit, layout, scratch);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {

// Runs kernel(args, layout, thread, threads, scratch) on each thread.
template <typename Args, typename Kernel>
void RunAttention(const Stream& stream, const Args& args, const Kernel& kernel) {
  const cpu::AttentionScratchLayout layout(cpu::MaxLength(args.shape), args.q.columns / args.shape.heads);
  stream.Run([&](int thread) {
    kernel(args, layout, thread, stream.threads(), cpu::ThreadScratch(args.scratch, thread, layout));
  });
}

}  // namespace

HWY_EXPORT(AttentionForwardKernel);
HWY_EXPORT(AttentionBackwardKernel);

void cpu::AttentionForward(const Stream& stream, const AttentionForwardArgs& args) {
  RunAttention(stream, args, HWY_DYNAMIC_DISPATCH(AttentionForwardKernel));
}

void cpu::AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args) {
  RunAttention(stream, args, HWY_DYNAMIC_DISPATCH(AttentionBackwardKernel));
}

}  // namespace hadal

#endif  // HWY_ONCE
