#include "kernels/cuda/tensor_attention.h"

#include <type_traits>

#include "kernels/cuda/tensor_attention_copy.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

// The d_q kernel holds its queries in registers, and d_outputs if there is room for both.
template <int kWidth>
using RowsOfDOutput = std::conditional_t<(kWidth <= 64), HeldRows<kWidth>, RowsInTile<kWidth>>;

// The keys of a block's sentence, and of the lane's two queries, in the d_q kernel. Keys are numbered from the
// sentence's first one.
struct QueryLane {
  int head, first_query, keys, place;  // place: of the block's first query
  SeenRows all;                        // by the block's queries
  int own_end[2];                      // each of the lane's queries sees no key from here on
  float log_sum_exp[2] = {};
};

HADAL_DEVICE QueryLane ThisQueryLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int keys = tile.key_end - tile.key_begin, place = tile.first - tile.query_begin;
  QueryLane at = {.head = static_cast<int>(BlockY()),
                  .first_query = tile.first + lane.first_row,
                  .keys = keys,
                  .place = place,
                  .all = KeysOfQueries(args.shape, place, place + tile.rows - 1, keys)};
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    at.own_end[h] = KeysOfQueries(args.shape, place + lane.row(h), place + lane.row(h), keys).end;
    if (lane.row(h) < tile.rows) at.log_sum_exp[h] = Load(args.log_sum_exp.row(at.head) + (tile.first + lane.row(h)));
  }
  return at;
}

// Computes the pairs with the keys in shared memory, which are those from `key` on.
template <int kWidth>
HADAL_DEVICE void FillPairs(const AttentionBackwardArgs<BFloat16>& args, const QueryLane& at, int key,
                            const HeldRows<kWidth>& queries, const RowsOfDOutput<kWidth>& d_outputs,
                            const BackwardTiles& tiles, Pairs& pairs) {
  const FragmentLane lane;
  pairs.probability = DotFragments(queries, tiles.keys);
  HideFarKeys<true>(args.shape.reach, at.place, key, pairs.probability);
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      float& p = pairs.probability.c[j].v[i];
      const bool seen = lane.other(j, i % 2) < at.own_end[i / 2] - key;
      p = seen ? FastExp(p * ScoreScale<kWidth>() - at.log_sum_exp[i / 2]) : 0.0f;
    }
  }
  if (args.dropout.active()) {
    pairs.kept = KeptOfQueries(args.dropout, at.first_query, args.shape.heads, at.head, key / 8);
  }
  pairs.d_weight = DotFragments(d_outputs, tiles.values);
}

// r (the first key's dA) and Σ P (dP − r) / Σ P (kernels/attention.md) of each of a lane's queries; the same in the
// four lanes of a row.
struct RowTerms {
  float first[2] = {}, probabilities[2] = {}, products[2] = {};

  HADAL_DEVICE void Add(const Pairs& pairs, bool first_keys, const DeviceDropout& dropout) {
    HADAL_UNROLL for (int h = 0; h < 2; ++h) {
      if (first_keys) first[h] = ShuffleFrom(pairs.d_weight.c[0].v[2 * h], ThreadIndex() % kWarp / 4 * 4);
      HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
        HADAL_UNROLL for (int e = 0; e < 2; ++e) {
          const float p = pairs.probability.c[j].v[2 * h + e];
          probabilities[h] += p;
          products[h] = MulAdd(p, DProbability(pairs, j, 2 * h + e, dropout) - first[h], products[h]);
        }
      }
    }
  }
  HADAL_DEVICE float Mean(int h) const { return probabilities[h] == 0.0f ? 0.0f : products[h] / probabilities[h]; }
};

// The gradients of the scores.
HADAL_DEVICE PairFragments ScoreGradients(const Pairs& pairs, const RowTerms& terms, const DeviceDropout& dropout) {
  PairFragments d_scores;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const float difference = (DProbability(pairs, j, i, dropout) - terms.first[i / 2]) - terms.Mean(i / 2);
      d_scores.c[j].v[i] = pairs.probability.c[j].v[i] * difference;
    }
  }
  return d_scores;
}

// The sum of the keys that a block's queries see. Each warp adds half of the columns; all rows of the sums are equal.
template <int kWidth>
struct KeySum {
  RowSums<kWidth / 2> half;

  HADAL_DEVICE static int FirstUnit() { return ThreadIndex() / kWarp * (kWidth / 16); }
  HADAL_DEVICE void Add(Shared<Vector16> keys) {
    PairFragments ones;
    HADAL_UNROLL for (FragmentC& c : ones.c) c = {{1.0f, 1.0f, 1.0f, 1.0f}};
    AddWeightedFragments<kWidth>(ones, keys, half, FirstUnit());
  }
  HADAL_DEVICE void PutMean(int keys, Shared<float> mean) const {
    const FragmentLane lane;
    const float factor = keys == 0 ? 0.0f : 1.0f / static_cast<float>(keys);
    if (lane.g != 0) return;
    HADAL_UNROLL for (int n = 0; n < kWidth / 16; ++n) {
      HADAL_UNROLL for (int e = 0; e < 2; ++e) mean[8 * FirstUnit() + lane.other(n, e)] = half.c[n].v[e] * factor;
    }
  }
};

// The first loop over the keys: computes terms and the mean of the keys. pairs: those of the last keys.
template <int kWidth, bool kAligned>
HADAL_DEVICE RowTerms SumRows(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile,
                              const QueryLane& at, const HeldRows<kWidth>& queries,
                              const RowsOfDOutput<kWidth>& d_outputs, const BackwardTiles& tiles,
                              Shared<float> mean_key, Pairs& pairs) {
  RowTerms terms;
  KeySum<kWidth> key_sum;
  const int column = at.head / args.shape.group * kWidth, begin = at.all.loop_begin();
  RowReader<kWidth, kAligned> readers[] = {{args.k, tile.key_begin + begin, column, args.shape.rotary, begin},
                                           {args.v, tile.key_begin + begin, column}};
  for (int key = begin; key < at.all.end; key += kTensorRows) {
    LoadTiles(readers, at.keys - key, {tiles.keys, tiles.values});
    key_sum.Add(tiles.keys);
    FillPairs<kWidth>(args, at, key, queries, d_outputs, tiles, pairs);
    terms.Add(pairs, key == begin, args.dropout);
  }
  key_sum.PutMean(at.all.end - begin, mean_key);
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    terms.probabilities[h] = SumOfRow(terms.probabilities[h]);
    terms.products[h] = SumOfRow(terms.products[h]);
  }
  return terms;
}

// Subtracts Σ_j ds_ij · (mean key) of ds as rounded, which is 0 but for the rounding (kernels/attention.md).
template <int kWidth>
HADAL_DEVICE void SubtractMeanKey(const FragmentC& d_score_sums, Shared<float> mean_key, RowSums<kWidth>& d_query) {
  const FragmentLane lane;
  HADAL_UNROLL for (int n = 0; n < kWidth / 8; ++n) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      float& d = d_query.c[n].v[i];
      d = MulAdd(-d_score_sums.v[i / 2 * 2], mean_key[lane.other(n, i % 2)], d);
    }
  }
}

// Computes d_q of a tile of queries in one head, and their row_terms. Loops over the keys twice; a sentence of at most
// 32 keys keeps its pairs in registers for the second loop. tiles.queries: finally d_q.
template <int kWidth, bool kAligned>
HADAL_DEVICE void GradientsOfQueries(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile,
                                     const BackwardTiles& tiles, Shared<float> mean_key) {
  const QueryLane at = ThisQueryLane(args, tile);
  const FragmentLane lane;
  const int column = at.head * kWidth;
  const int position = tile.first - tile.query_begin, key_column = at.head / args.shape.group * kWidth;
  RowReader<kWidth, kAligned> own[] = {{args.q, tile.first, column, args.shape.rotary, position},
                                       {args.d_output, tile.first, column}};
  LoadTiles(own, tile.rows, {tiles.queries, tiles.d_outputs});
  const HeldRows<kWidth> queries(RowsInTile<kWidth>{tiles.queries});
  const RowsOfDOutput<kWidth> d_outputs(RowsInTile<kWidth>{tiles.d_outputs});
  Pairs pairs;
  const RowTerms terms = SumRows<kWidth, kAligned>(args, tile, at, queries, d_outputs, tiles, mean_key, pairs);

  RowSums<kWidth> d_query;
  FragmentC d_score_sums;
  const int begin = at.all.loop_begin();
  RowReader<kWidth, kAligned> readers[] = {{args.k, tile.key_begin + begin, key_column, args.shape.rotary, begin},
                                           {args.v, tile.key_begin + begin, key_column}};
  const bool one_tile = at.all.end - begin <= kTensorRows;
  for (int key = begin; key < at.all.end; key += kTensorRows) {
    if (!one_tile) {
      LoadTiles(readers, at.keys - key, {tiles.keys, tiles.values});
      FillPairs<kWidth>(args, at, key, queries, d_outputs, tiles, pairs);
    }
    const PairFragments d_scores = ScoreGradients(pairs, terms, args.dropout);
    AddRoundedWeights(d_scores, d_score_sums);
    AddWeightedFragments<kWidth>(d_scores, tiles.keys, d_query);
  }
  Barrier();  // mean_key is written; the queries have been read, also where there are no keys
  SubtractMeanKey(d_score_sums, mean_key, d_query);
  TurnBack<kWidth>(args.shape.rotary, position, tile.rows, d_query);
  PutSums<kWidth>(d_query, {ScoreScale<kWidth>(), ScoreScale<kWidth>()}, tiles.queries);
  Barrier();
  StoreTile<kWidth, kAligned>(tiles.queries, args.d_q, tile.first, tile.rows, column);
  // After the last product, because products need the whole warp converged.
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    if (lane.t != 0 || lane.row(h) >= tile.rows) continue;
    Store(args.row_terms.row(2 * at.head) + (tile.first + lane.row(h)), terms.first[h]);
    Store(args.row_terms.row(2 * at.head + 1) + (tile.first + lane.row(h)), terms.Mean(h));
  }
}

template <int kWidth, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTensorThreads) TensorQueryKernel(AttentionBackwardArgs<BFloat16> args) {
  HADAL_SHARED(Vector16, queries, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, d_outputs, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, keys, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, values, kTileUnits<kWidth>);
  HADAL_SHARED(float, mean_key, kWidth);
  ForTilesOfBlock(args.query_tiles, args.query_tile_capacity, [&](const AttentionTile& tile) {
    GradientsOfQueries<kWidth, kAligned>(args, tile, {queries, d_outputs, keys, values}, mean_key);
  });
}

template <bool kAligned>
auto QueryKernelFor(int width) {
  return width == 32   ? TensorQueryKernel<32, kAligned>
         : width == 64 ? TensorQueryKernel<64, kAligned>
                       : TensorQueryKernel<128, kAligned>;
}

}  // namespace

void TensorQueryGradient(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args) {
  const int width = args.shape.head_width;
  HADAL_CHECK(OnTensorCores<BFloat16>(args.shape));
  if (args.query_tile_capacity == 0) return;
  const LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, args.shape.heads),
                             .blocks_y = args.shape.heads,
                             .threads = kTensorThreads};
  const bool aligned = AllRowsOn16Bytes(args.q, args.k, args.v, args.d_output, args.d_q, args.d_k, args.d_v);
  Launch(stream, shape, aligned ? QueryKernelFor<true>(width) : QueryKernelFor<false>(width), args);
}

}  // namespace hadal::cuda
