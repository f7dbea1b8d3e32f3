#include "kernels/cuda/tensor_attention.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr uint32_t kAllKept = 0xFFFF;

template <int kWidth>
HADAL_DEVICE float ScoreScale() {
  return 1.0f / SquareRoot(static_cast<float>(kWidth));
}

// A lane's sixteen (query, key) pairs: P, dA = dO·V, and which of them dropout keeps.
struct Pairs {
  PairFragments probability, d_weight;
  uint32_t kept = kAllKept;
};

// dP = f · dA of pair v[i] of fragment j.
HADAL_DEVICE float DProbability(const Pairs& pairs, int j, int i, const DeviceDropout& dropout) {
  return pairs.kept >> (4 * j + i) & 1 ? pairs.d_weight.c[j].v[i] * dropout.scale : 0.0f;
}

// A lane's place in its block, and its two queries, in the d_q kernel.
struct QueryLane {
  AttentionTile tile;
  int64_t head, keys_end;  // the block's queries see no key from keys_end on
  int64_t own_end[2];      // each of the lane's queries sees no key from here on
  float log_sum_exp[2] = {};
  RandomPosition position;
};

HADAL_DEVICE QueryLane ThisQueryLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  QueryLane at = {.tile = tile, .head = BlockY(), .keys_end = tile.key_end, .own_end = {tile.key_end, tile.key_end}};
  const int64_t first = tile.key_begin + (tile.first - tile.query_begin);
  if (args.shape.causal) at.keys_end = first + tile.rows;
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    if (args.shape.causal) at.own_end[h] = first + lane.row(h) + 1;
    if (lane.row(h) < tile.rows) at.log_sum_exp[h] = Load(args.log_sum_exp.row(at.head) + (tile.first + lane.row(h)));
  }
  if (args.dropout.active()) at.position = Load(args.dropout.position);
  return at;
}

// The block's tiles in shared memory.
struct Tiles {
  Shared<Vector16> queries, d_outputs, keys, values;
};

// Loads 32 keys and values from `first_key` on. Every thread of the block must call it.
template <int kWidth>
HADAL_DEVICE void FillPairs(const AttentionBackwardArgs<BFloat16>& args, const QueryLane& at, int64_t first_key,
                            const HeldRows<kWidth>& queries, const HeldRows<kWidth>& d_outputs, const Tiles& tiles,
                            Pairs& pairs) {
  const FragmentLane lane;
  Barrier();  // the previous iteration's keys and values have been read
  LoadUnits<kWidth>(tiles.keys, args.k, first_key, at.tile.key_end, at.head * kWidth);
  LoadUnits<kWidth>(tiles.values, args.v, first_key, at.tile.key_end, at.head * kWidth);
  Barrier();
  pairs.probability = DotFragments(queries, tiles.keys);
  const int left[2] = {static_cast<int>(at.own_end[0] - first_key), static_cast<int>(at.own_end[1] - first_key)};
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      float& p = pairs.probability.c[j].v[i];
      p = lane.other(j, i % 2) < left[i / 2] ? FastExp(p * ScoreScale<kWidth>() - at.log_sum_exp[i / 2]) : 0.0f;
    }
  }
  if (args.dropout.active()) {
    pairs.kept = KeptOfQueries(args.dropout, at.position, at.tile.first + lane.first_row, args.shape.heads, at.head,
                               (first_key - at.tile.key_begin) / 8);
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

// Computes d_q of a tile of queries in one head, and their row_terms. Loops over the keys twice; a sentence of at most
// 32 keys keeps its pairs in registers for the second loop. tiles.queries: finally d_q.
template <int kWidth>
HADAL_DEVICE void GradientsOfQueries(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile,
                                     const Tiles& tiles) {
  const QueryLane at = ThisQueryLane(args, tile);
  const FragmentLane lane;
  LoadUnits<kWidth>(tiles.queries, args.q, tile.first, tile.query_end, at.head * kWidth);
  LoadUnits<kWidth>(tiles.d_outputs, args.d_output, tile.first, tile.query_end, at.head * kWidth);
  Barrier();
  const HeldRows<kWidth> own_queries(RowsInTile<kWidth>{tiles.queries}),
      own_d_outputs(RowsInTile<kWidth>{tiles.d_outputs});

  Pairs pairs;
  RowTerms terms;
  for (int64_t key = tile.key_begin; key < at.keys_end; key += kTensorRows) {
    FillPairs<kWidth>(args, at, key, own_queries, own_d_outputs, tiles, pairs);
    terms.Add(pairs, key == tile.key_begin, args.dropout);
  }
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    terms.probabilities[h] = SumOfRow(terms.probabilities[h]);
    terms.products[h] = SumOfRow(terms.products[h]);
  }

  RowSums<kWidth> d_query;
  const bool one_tile = at.keys_end - tile.key_begin <= kTensorRows;
  for (int64_t key = tile.key_begin; key < at.keys_end; key += kTensorRows) {
    if (!one_tile) FillPairs<kWidth>(args, at, key, own_queries, own_d_outputs, tiles, pairs);
    PairFragments d_scores;
    HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
      HADAL_UNROLL for (int i = 0; i < 4; ++i) {
        const float difference = (DProbability(pairs, j, i, args.dropout) - terms.first[i / 2]) - terms.Mean(i / 2);
        d_scores.c[j].v[i] = pairs.probability.c[j].v[i] * difference;
      }
    }
    AddWeightedFragments<kWidth>(d_scores, tiles.keys, d_query);
  }
  Barrier();  // without keys no other barrier separates reading the queries from overwriting them
  PutSums<kWidth>(d_query, {ScoreScale<kWidth>(), ScoreScale<kWidth>()}, tiles.queries);
  Barrier();
  StoreUnits<kWidth>(tiles.queries, args.d_q, tile.first, tile.rows, at.head * kWidth);
  // After the last product, because products need the whole warp converged.
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    if (lane.t != 0 || lane.row(h) >= tile.rows) continue;
    Store(args.row_terms.row(2 * at.head) + (tile.first + lane.row(h)), terms.first[h]);
    Store(args.row_terms.row(2 * at.head + 1) + (tile.first + lane.row(h)), terms.Mean(h));
  }
}

template <int kWidth>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTensorThreads) TensorQueryKernel(AttentionBackwardArgs<BFloat16> args) {
  HADAL_SHARED(Vector16, queries, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, d_outputs, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, keys, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, values, kTileUnits<kWidth>);
  ForTilesOfBlock(args.query_tiles, args.query_tile_capacity, [&](const AttentionTile& tile) {
    GradientsOfQueries<kWidth>(args, tile, {queries, d_outputs, keys, values});
  });
}

constexpr int32_t kNone = 0x7FFFFFFF;

// A lane's place in its block, and its two keys, in the d_k, d_v kernel.
struct KeyLane {
  AttentionTile tile;
  int64_t head, key_block;  // of the warp's first key
  int32_t first_seeing[2];  // first query of the sentence that sees each key; kNone if the key does not exist
  RandomPosition position;
};

HADAL_DEVICE KeyLane ThisKeyLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int64_t place = tile.first - tile.key_begin;
  KeyLane at = {.tile = tile, .head = BlockY(), .key_block = (place + lane.first_row) / 8};
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    at.first_seeing[h] = lane.row(h) >= tile.rows ? kNone
                         : args.shape.causal      ? static_cast<int32_t>(place) + lane.row(h)
                                                  : 0;
  }
  if (args.dropout.active()) at.position = Load(args.dropout.position);
  return at;
}

inline constexpr int kLogSumExp = 0, kFirst = kTensorRows, kMean = 2 * kTensorRows, kQueryNumbers = 3 * kTensorRows;

// Loads the block's data of 32 queries from `query` on; zeros after the sentence.
template <int kWidth>
HADAL_DEVICE void LoadQueries(const AttentionBackwardArgs<BFloat16>& args, const KeyLane& at, int64_t query,
                              const Tiles& tiles, Shared<float> numbers) {
  LoadUnits<kWidth>(tiles.queries, args.q, query, at.tile.query_end, at.head * kWidth);
  LoadUnits<kWidth>(tiles.d_outputs, args.d_output, query, at.tile.query_end, at.head * kWidth);
  const int i = ThreadIndex();
  if (i >= kTensorRows) return;
  const bool exists = query + i < at.tile.query_end;
  numbers[kLogSumExp + i] = exists ? Load(args.log_sum_exp.row(at.head) + (query + i)) : 0.0f;
  numbers[kFirst + i] = exists ? Load(args.row_terms.row(2 * at.head) + (query + i)) : 0.0f;
  numbers[kMean + i] = exists ? Load(args.row_terms.row(2 * at.head + 1) + (query + i)) : 0.0f;
}

// Replaces scores by probabilities; 0 for pairs that do not exist.
template <int kWidth>
HADAL_DEVICE void ToProbabilities(const KeyLane& at, int64_t query, Shared<float> numbers, PairFragments& scores) {
  const FragmentLane lane;
  const int place = static_cast<int>(query - at.tile.query_begin), left = static_cast<int>(at.tile.query_end - query);
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const int other = lane.other(j, i % 2);
      float& p = scores.c[j].v[i];
      p = other < left && place + other >= at.first_seeing[i / 2]
              ? FastExp(p * ScoreScale<kWidth>() - numbers[kLogSumExp + other])
              : 0.0f;
    }
  }
}

// Adds 32 queries to d_v without dropout's scale, and to d_k without the scores' scale.
template <int kWidth>
HADAL_DEVICE void AddQueries(const AttentionBackwardArgs<BFloat16>& args, const KeyLane& at, int64_t query,
                             const Tiles& tiles, Shared<float> numbers, RowSums<kWidth>& d_key,
                             RowSums<kWidth>& d_value) {
  const FragmentLane lane;
  Pairs pairs;
  pairs.probability = DotFragments(RowsInTile<kWidth>{tiles.keys}, tiles.queries);
  ToProbabilities<kWidth>(at, query, numbers, pairs.probability);
  if (args.dropout.active()) {
    pairs.kept = KeptOfKeys(args.dropout, at.position, query, args.shape.heads, at.head, at.key_block);
  }
  PairFragments weights;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      weights.c[j].v[i] = pairs.kept >> (4 * j + i) & 1 ? pairs.probability.c[j].v[i] : 0.0f;
    }
  }
  AddWeightedFragments<kWidth>(weights, tiles.d_outputs, d_value);
  pairs.d_weight = DotFragments(RowsInTile<kWidth>{tiles.values}, tiles.d_outputs);
  PairFragments d_scores;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const int other = lane.other(j, i % 2);
      const float difference =
          (DProbability(pairs, j, i, args.dropout) - numbers[kFirst + other]) - numbers[kMean + other];
      d_scores.c[j].v[i] = pairs.probability.c[j].v[i] * difference;
    }
  }
  AddWeightedFragments<kWidth>(d_scores, tiles.queries, d_key);
}

// Computes d_k and d_v of a tile of keys in one head. tiles.keys and values: finally d_k and d_v.
template <int kWidth>
HADAL_DEVICE void GradientsOfKeys(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile,
                                  const Tiles& tiles, Shared<float> numbers) {
  const KeyLane at = ThisKeyLane(args, tile);
  const int64_t column = at.head * kWidth, place = tile.first - tile.key_begin;
  LoadUnits<kWidth>(tiles.keys, args.k, tile.first, tile.key_end, column);
  LoadUnits<kWidth>(tiles.values, args.v, tile.first, tile.key_end, column);

  RowSums<kWidth> d_key, d_value;
  // Causal: no query before the tile's first key sees any of its keys.
  const int64_t begin = tile.query_begin + (args.shape.causal ? place / kTensorRows * kTensorRows : 0);
  for (int64_t query = begin; query < tile.query_end; query += kTensorRows) {
    Barrier();  // the previous iteration's queries have been read
    LoadQueries<kWidth>(args, at, query, tiles, numbers);
    Barrier();
    AddQueries<kWidth>(args, at, query, tiles, numbers, d_key, d_value);
  }
  Barrier();  // all keys and values have been read, or, without queries, written
  const float kept = args.dropout.active() ? args.dropout.scale : 1.0f;
  PutSums<kWidth>(d_key, {ScoreScale<kWidth>(), ScoreScale<kWidth>()}, tiles.keys);
  PutSums<kWidth>(d_value, {kept, kept}, tiles.values);
  Barrier();
  StoreUnits<kWidth>(tiles.keys, args.d_k, tile.first, tile.rows, column);
  StoreUnits<kWidth>(tiles.values, args.d_v, tile.first, tile.rows, column);
}

template <int kWidth>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTensorThreads) TensorKeyValueKernel(AttentionBackwardArgs<BFloat16> args) {
  HADAL_SHARED(Vector16, keys, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, values, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, queries, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, d_outputs, kTileUnits<kWidth>);
  HADAL_SHARED(float, numbers, kQueryNumbers);
  ForTilesOfBlock(args.key_tiles, args.key_tile_capacity, [&](const AttentionTile& tile) {
    GradientsOfKeys<kWidth>(args, tile, {queries, d_outputs, keys, values}, numbers);
  });
}

}  // namespace

void TensorAttentionBackward(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args) {
  const int width = args.shape.head_width;
  HADAL_CHECK(OnTensorCores<BFloat16>(width));
  LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, args.shape.heads),
                       .blocks_y = args.shape.heads,
                       .threads = kTensorThreads};
  if (args.query_tile_capacity > 0) {
    Launch(stream, shape,
           width == 32   ? TensorQueryKernel<32>
           : width == 64 ? TensorQueryKernel<64>
                         : TensorQueryKernel<128>,
           args);
  }
  shape.blocks_x = BlocksForTiles(args.shape, args.key_tile_capacity, args.shape.heads);
  if (args.key_tile_capacity > 0) {
    Launch(stream, shape,
           width == 32   ? TensorKeyValueKernel<32>
           : width == 64 ? TensorKeyValueKernel<64>
                         : TensorKeyValueKernel<128>,
           args);
  }
}

}  // namespace hadal::cuda
