#include "kernels/cuda/tensor_attention.h"

#include <type_traits>

#include "kernels/cuda/tensor_attention_copy.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr uint32_t kAllKept = 0xFFFF;

template <int kWidth>
HADAL_DEVICE float ScoreScale() {
  return 1.0f / SquareRoot(static_cast<float>(kWidth));
}

// The d_q kernel holds its queries in registers, and d_outputs if there is room for both.
template <int kWidth>
using RowsOfDOutput = std::conditional_t<(kWidth <= 64), HeldRows<kWidth>, RowsInTile<kWidth>>;

// A lane's sixteen (query, key) pairs: P, dA = dO·V, and which of them dropout keeps.
struct Pairs {
  PairFragments probability, d_weight;
  uint32_t kept = kAllKept;
};

// dP = f · dA of pair v[i] of fragment j.
HADAL_DEVICE float DProbability(const Pairs& pairs, int j, int i, const DeviceDropout& dropout) {
  return pairs.kept >> (4 * j + i) & 1 ? pairs.d_weight.c[j].v[i] * dropout.scale : 0.0f;
}

// The keys of a block's sentence, and of the lane's two queries, in the d_q kernel. Keys are numbered from the
// sentence's first one.
struct QueryLane {
  int head, first_query, keys;
  int keys_end;    // the block's queries see no key from here on
  int own_end[2];  // each of the lane's queries sees no key from here on
  float log_sum_exp[2] = {};
};

HADAL_DEVICE QueryLane ThisQueryLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int keys = tile.key_end - tile.key_begin, first = tile.first - tile.query_begin;
  QueryLane at = {.head = static_cast<int>(BlockY()),
                  .first_query = tile.first + lane.first_row,
                  .keys = keys,
                  .keys_end = keys,
                  .own_end = {keys, keys}};
  if (args.shape.causal) at.keys_end = first + tile.rows;
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    if (args.shape.causal) at.own_end[h] = first + lane.row(h) + 1;
    if (lane.row(h) < tile.rows) at.log_sum_exp[h] = Load(args.log_sum_exp.row(at.head) + (tile.first + lane.row(h)));
  }
  return at;
}

// The block's tiles in shared memory.
struct Tiles {
  Shared<Vector16> queries, d_outputs, keys, values;
};

// Computes the pairs with the keys in shared memory, which are those from `key` on.
template <int kWidth>
HADAL_DEVICE void FillPairs(const AttentionBackwardArgs<BFloat16>& args, const QueryLane& at, int key,
                            const HeldRows<kWidth>& queries, const RowsOfDOutput<kWidth>& d_outputs, const Tiles& tiles,
                            Pairs& pairs) {
  const FragmentLane lane;
  pairs.probability = DotFragments(queries, tiles.keys);
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
                              const RowsOfDOutput<kWidth>& d_outputs, const Tiles& tiles, Shared<float> mean_key,
                              Pairs& pairs) {
  RowTerms terms;
  KeySum<kWidth> key_sum;
  RowReader<kWidth, kAligned> readers[] = {{args.k, tile.key_begin, at.head * kWidth},
                                           {args.v, tile.key_begin, at.head * kWidth}};
  for (int key = 0; key < at.keys_end; key += kTensorRows) {
    LoadTiles(readers, at.keys - key, {tiles.keys, tiles.values});
    key_sum.Add(tiles.keys);
    FillPairs<kWidth>(args, at, key, queries, d_outputs, tiles, pairs);
    terms.Add(pairs, key == 0, args.dropout);
  }
  key_sum.PutMean(at.keys_end, mean_key);
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
                                     const Tiles& tiles, Shared<float> mean_key) {
  const QueryLane at = ThisQueryLane(args, tile);
  const FragmentLane lane;
  const int column = at.head * kWidth;
  RowReader<kWidth, kAligned> own[] = {{args.q, tile.first, column}, {args.d_output, tile.first, column}};
  LoadTiles(own, tile.rows, {tiles.queries, tiles.d_outputs});
  const HeldRows<kWidth> queries(RowsInTile<kWidth>{tiles.queries});
  const RowsOfDOutput<kWidth> d_outputs(RowsInTile<kWidth>{tiles.d_outputs});
  Pairs pairs;
  const RowTerms terms = SumRows<kWidth, kAligned>(args, tile, at, queries, d_outputs, tiles, mean_key, pairs);

  RowSums<kWidth> d_query;
  FragmentC d_score_sums;
  RowReader<kWidth, kAligned> readers[] = {{args.k, tile.key_begin, column}, {args.v, tile.key_begin, column}};
  const bool one_tile = at.keys_end <= kTensorRows;
  for (int key = 0; key < at.keys_end; key += kTensorRows) {
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

constexpr int kNone = 0x7FFFFFFF;

// The queries of a block's sentence, and the lane's two keys, in the d_k, d_v kernel. Queries are numbered from the
// sentence's first one.
struct KeyLane {
  int head, queries, first_query;  // first_query: in the batch
  int key_block;                   // of the warp's first key
  int first_seeing[2];             // first query that sees each key; kNone if the key does not exist
};

HADAL_DEVICE KeyLane ThisKeyLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int place = tile.first - tile.key_begin;
  KeyLane at = {.head = static_cast<int>(BlockY()),
                .queries = tile.query_end - tile.query_begin,
                .first_query = tile.query_begin,
                .key_block = (place + lane.first_row) / 8};
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    at.first_seeing[h] = lane.row(h) >= tile.rows ? kNone : args.shape.causal ? place + lane.row(h) : 0;
  }
  return at;
}

inline constexpr int kLogSumExp = 0, kFirst = kTensorRows, kMean = 2 * kTensorRows, kQueryNumbers = 3 * kTensorRows;

// One query's numbers.
struct QueryNumbers {
  float log_sum_exp = 0.0f, first = 0.0f, mean = 0.0f;
};

// Loads those of the thread's query, of 32 from row `first` on; zeros from row first + rows on.
HADAL_DEVICE QueryNumbers LoadNumbers(const AttentionBackwardArgs<BFloat16>& args, int head, int first, int rows) {
  const int i = ThreadIndex();
  if (i >= kTensorRows || i >= rows) return {};
  return {Load(args.log_sum_exp.row(head) + (first + i)), Load(args.row_terms.row(2 * head) + (first + i)),
          Load(args.row_terms.row(2 * head + 1) + (first + i))};
}

HADAL_DEVICE void PutNumbers(const QueryNumbers& own, Shared<float> numbers) {
  const int i = ThreadIndex();
  if (i >= kTensorRows) return;
  numbers[kLogSumExp + i] = own.log_sum_exp;
  numbers[kFirst + i] = own.first;
  numbers[kMean + i] = own.mean;
}

// Replaces scores by probabilities; 0 for pairs that do not exist.
template <int kWidth>
HADAL_DEVICE void ToProbabilities(const KeyLane& at, int query, Shared<float> numbers, PairFragments& scores) {
  const FragmentLane lane;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const int other = lane.other(j, i % 2);
      float& p = scores.c[j].v[i];
      p = other < at.queries - query && other >= at.first_seeing[i / 2] - query
              ? FastExp(p * ScoreScale<kWidth>() - numbers[kLogSumExp + other])
              : 0.0f;
    }
  }
}

// Adds 32 queries to d_v without dropout's scale, and to d_k without the scores' scale.
template <int kWidth>
HADAL_DEVICE void AddQueries(const AttentionBackwardArgs<BFloat16>& args, const KeyLane& at, int query,
                             const Tiles& tiles, Shared<float> numbers, RowSums<kWidth>& d_key,
                             RowSums<kWidth>& d_value) {
  const FragmentLane lane;
  Pairs pairs;
  pairs.probability = DotFragments(RowsInTile<kWidth>{tiles.keys}, tiles.queries);
  ToProbabilities<kWidth>(at, query, numbers, pairs.probability);
  if (args.dropout.active()) {
    pairs.kept = KeptOfKeys(args.dropout, at.first_query + query, args.shape.heads, at.head, at.key_block);
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
template <int kWidth, bool kAligned>
HADAL_DEVICE void GradientsOfKeys(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile,
                                  const Tiles& tiles, Shared<float> numbers) {
  const KeyLane at = ThisKeyLane(args, tile);
  const int column = at.head * kWidth;
  RowReader<kWidth, kAligned> own[] = {{args.k, tile.first, column}, {args.v, tile.first, column}};
  LoadTiles(own, tile.rows, {tiles.keys, tiles.values});

  RowSums<kWidth> d_key, d_value;
  // Causal: no query before the tile's first key sees any of its keys.
  const int begin = args.shape.causal ? (tile.first - tile.key_begin) / kTensorRows * kTensorRows : 0;
  RowReader<kWidth, kAligned> readers[] = {{args.q, at.first_query + begin, column},
                                           {args.d_output, at.first_query + begin, column}};
  for (int query = begin; query < at.queries; query += kTensorRows) {
    const QueryNumbers own_numbers = LoadNumbers(args, at.head, at.first_query + query, at.queries - query);
    LoadTiles(readers, at.queries - query, {tiles.queries, tiles.d_outputs}, [&] { PutNumbers(own_numbers, numbers); });
    AddQueries<kWidth>(args, at, query, tiles, numbers, d_key, d_value);
  }
  Barrier();  // all keys and values have been read
  const float kept = args.dropout.active() ? args.dropout.scale : 1.0f;
  PutSums<kWidth>(d_key, {ScoreScale<kWidth>(), ScoreScale<kWidth>()}, tiles.keys);
  PutSums<kWidth>(d_value, {kept, kept}, tiles.values);
  Barrier();
  StoreTile<kWidth, kAligned>(tiles.keys, args.d_k, tile.first, tile.rows, column);
  StoreTile<kWidth, kAligned>(tiles.values, args.d_v, tile.first, tile.rows, column);
}

// Blocks per multiprocessor, which bounds a thread's registers: without the bound fewer blocks would fit at widths of
// 32 and 64.
template <int kWidth>
inline constexpr int kKeyValueBlocks = kWidth == 32   ? 8
                                       : kWidth == 64 ? 6
                                                      : 4;

template <int kWidth, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTensorThreads, kAligned ? kKeyValueBlocks<kWidth> : 0)
    TensorKeyValueKernel(AttentionBackwardArgs<BFloat16> args) {
  HADAL_SHARED(Vector16, keys, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, values, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, queries, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, d_outputs, kTileUnits<kWidth>);
  HADAL_SHARED(float, numbers, kQueryNumbers);
  ForTilesOfBlock(args.key_tiles, args.key_tile_capacity, [&](const AttentionTile& tile) {
    GradientsOfKeys<kWidth, kAligned>(args, tile, {queries, d_outputs, keys, values}, numbers);
  });
}

template <bool kAligned>
auto QueryKernelFor(int width) {
  return width == 32   ? TensorQueryKernel<32, kAligned>
         : width == 64 ? TensorQueryKernel<64, kAligned>
                       : TensorQueryKernel<128, kAligned>;
}

template <bool kAligned>
auto KeyValueKernelFor(int width) {
  return width == 32   ? TensorKeyValueKernel<32, kAligned>
         : width == 64 ? TensorKeyValueKernel<64, kAligned>
                       : TensorKeyValueKernel<128, kAligned>;
}

}  // namespace

void TensorAttentionBackward(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args) {
  const int width = args.shape.head_width;
  HADAL_CHECK(OnTensorCores<BFloat16>(width));
  const bool aligned = AllRowsOn16Bytes(args.q, args.k, args.v, args.d_output, args.d_q, args.d_k, args.d_v);
  LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, args.shape.heads),
                       .blocks_y = args.shape.heads,
                       .threads = kTensorThreads};
  if (args.query_tile_capacity > 0) {
    Launch(stream, shape, aligned ? QueryKernelFor<true>(width) : QueryKernelFor<false>(width), args);
  }
  shape.blocks_x = BlocksForTiles(args.shape, args.key_tile_capacity, args.shape.heads);
  if (args.key_tile_capacity > 0) {
    Launch(stream, shape, aligned ? KeyValueKernelFor<true>(width) : KeyValueKernelFor<false>(width), args);
  }
}

}  // namespace hadal::cuda
