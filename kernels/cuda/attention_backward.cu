#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/tensor_attention.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

HADAL_DEVICE float ScaleOf(int width) { return 1.0f / SquareRoot(static_cast<float>(width)); }

// A thread's eight (query, key) pairs: P, dA = dO·V, and which of them dropout keeps.
struct Pairs {
  float probability[kRowsOfThread], d_weight[kRowsOfThread];
  uint32_t kept = 0xFF;
};

// dP = f · dA
HADAL_DEVICE float DProbability(const Pairs& pairs, int j, const DeviceDropout& dropout) {
  return pairs.kept >> j & 1 ? pairs.d_weight[j] * dropout.scale : 0.0f;
}

// A thread's place in its block, and its query, in the d_q kernel.
struct QueryThread {
  AttentionTile tile;
  int row, group, width;
  int64_t head, query;
  SeenRows seen;  // by this query
  float log_sum_exp = 0.0f;
  RandomPosition position;
};

// Loads 32 keys and values from key `key` of the sentence on. Every thread of the block must call it.
template <typename T, int kWidth>
HADAL_DEVICE void FillPairs(const AttentionBackwardArgs<T>& args, const QueryThread& at, int key, Shared<float> queries,
                            Shared<float> d_outputs, Shared<float> others, Pairs& pairs) {
  const int64_t column = at.head / args.shape.group * at.width, first_key = at.tile.key_begin + key;
  Barrier();
  LoadTile<kWidth, kOtherRows>(others, args.k, first_key, at.tile.key_end, column, at.width, 1.0f, args.shape.rotary,
                               at.tile.key_begin);
  Barrier();
  DotRows<kWidth>(queries, at.row, others, at.group, pairs.probability);
  const uint32_t seen = BitsOfSeen(key + kRowsOfThread * at.group, at.seen);
  HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
    pairs.probability[j] = seen >> j & 1 ? AttentionExp<T>(pairs.probability[j] - at.log_sum_exp) : 0.0f;
  }
  if (args.dropout.active()) {
    const int64_t key_block = key / kRowsOfThread + at.group;
    pairs.kept = KeptKeys(args.dropout, at.position, at.query, args.shape.heads, at.head, key_block);
  }
  Barrier();
  LoadTile<kWidth, kOtherRows>(others, args.v, first_key, at.tile.key_end, column, at.width, 1.0f);
  Barrier();
  DotRows<kWidth>(d_outputs, at.row, others, at.group, pairs.d_weight);
}

// Shared memory of the d_q kernel.
struct QueryTiles {
  Shared<float> queries, d_outputs, others, gradients;
};

// Computes d_q of a tile of queries in one head, and their row_terms. Loops over the keys twice; a sentence of at most
// 32 keys keeps its pairs in registers for the second loop.
template <typename T, int kWidth>
HADAL_DEVICE void GradientsOfQueries(const AttentionBackwardArgs<T>& args, const AttentionTile& tile,
                                     const QueryTiles& tiles) {
  constexpr int kRows = kBlockRows<kWidth>;
  const auto [queries, d_outputs, others, gradients] = tiles;
  QueryThread at;
  at.tile = tile;
  at.row = ThreadIndex() / kGroups, at.group = ThreadIndex() % kGroups, at.width = args.shape.head_width;
  at.head = HeadOfBlock<kWidth>(), at.query = at.tile.first + at.row;
  const int64_t column = at.head * at.width;
  const int first_place = tile.first - tile.query_begin, place = first_place + at.row;
  const int keys = tile.key_end - tile.key_begin;
  const DeviceRotary& rotary = args.shape.rotary;
  const SeenRows all = KeysOfQueries(args.shape, first_place, first_place + tile.rows - 1, keys);
  at.seen = KeysOfQueries(args.shape, place, place, keys);
  if (at.row < at.tile.rows) at.log_sum_exp = Load(args.log_sum_exp.row(at.head) + at.query);
  if (args.dropout.active()) at.position = Load(args.dropout.position);
  LoadTile<kWidth, kRows>(queries, args.q, at.tile.first, at.tile.query_end, column, at.width, ScaleOf(at.width),
                          rotary, at.tile.query_begin);
  LoadTile<kWidth, kRows>(d_outputs, args.d_output, at.tile.first, at.tile.query_end, column, at.width, 1.0f);

  Pairs pairs;
  float first = 0.0f, probabilities = 0.0f, products = 0.0f;  // r, Σ P, Σ P (dP − r)
  for (int key = all.loop_begin(); key < all.end; key += kOtherRows) {
    FillPairs<T, kWidth>(args, at, key, queries, d_outputs, others, pairs);
    if (key == all.loop_begin()) first = ShuffleFrom(pairs.d_weight[0], ThreadIndex() % kWarp / kGroups * kGroups);
    HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
      probabilities += pairs.probability[j];
      products = MulAdd(pairs.probability[j], DProbability(pairs, j, args.dropout) - first, products);
    }
  }
  probabilities = SumOfRow(probabilities);
  products = SumOfRow(products);
  const float mean = probabilities == 0.0f ? 0.0f : products / probabilities;

  OwnColumns<kWidth> d_query;
  const bool one_tile = all.end - all.loop_begin() <= kOtherRows;
  for (int key = all.loop_begin(); key < all.end; key += kOtherRows) {
    if (!one_tile) FillPairs<T, kWidth>(args, at, key, queries, d_outputs, others, pairs);
    float d_scores[kRowsOfThread];
    HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
      d_scores[j] = pairs.probability[j] * ((DProbability(pairs, j, args.dropout) - first) - mean);
    }
    StoreScores(gradients, at.row, at.group, d_scores);
    Barrier();  // the values have been read, the gradients are written
    LoadTile<kWidth, kOtherRows>(others, args.k, at.tile.key_begin + key, at.tile.key_end,
                                 at.head / args.shape.group * at.width, at.width, 1.0f, rotary, at.tile.key_begin);
    Barrier();
    AddWeightedRows<kWidth>(gradients, at.row, others, at.group, d_query);
  }
  TurnBack<kWidth>(rotary, place, at.row < at.tile.rows, queries, at.row, at.group, d_query);
  if (at.row >= at.tile.rows) return;
  StoreOwnColumns<kWidth>(d_query, ScaleOf(at.width), args.d_q.row(at.query) + column, at.group, at.width);
  if (at.group != 0) return;
  Store(args.row_terms.row(2 * at.head) + at.query, first);
  Store(args.row_terms.row(2 * at.head + 1) + at.query, mean);
}

template <typename T, int kWidth>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kBlockRows<kWidth>* kGroups) QueryGradientKernel(AttentionBackwardArgs<T> args) {
  constexpr int kRows = kBlockRows<kWidth>;
  HADAL_SHARED(float, queries, (kTileFloats<kWidth, kRows>));
  HADAL_SHARED(float, d_outputs, (kTileFloats<kWidth, kRows>));
  HADAL_SHARED(float, others, (kTileFloats<kWidth, kOtherRows>));
  HADAL_SHARED(float, gradients, kRows* kScoreStride);
  ForTilesOfBlock(args.query_tiles, args.query_tile_capacity, [&](const AttentionTile& tile) {
    const AttentionTile part = PartOfBlock<kWidth>(tile);
    if (part.rows > 0) GradientsOfQueries<T, kWidth>(args, part, {queries, d_outputs, others, gradients});
  });
}

// A thread's place in its block, and its key, in the d_k, d_v kernel.
struct KeyThread {
  AttentionTile tile;
  int row, group, width;
  int64_t head, first_seeing, seeing_end;  // the queries that see this key
  RandomPosition position;
};

// Returns a mask with bit i set if the pair of this thread's key with query first_query + 8·group + i is kept. A lane
// draws for one query and the warp's eight keys; then the lanes exchange draws.
template <typename T>
HADAL_DEVICE uint32_t KeptQueries(const AttentionBackwardArgs<T>& args, const KeyThread& at, int64_t first_query) {
  const int64_t key_block = (at.tile.first - at.tile.key_begin + at.row) / kRowsOfThread;
  const int lane = ThreadIndex() % kWarp;
  const uint32_t of_query =
      KeptKeys(args.dropout, at.position, first_query + lane, args.shape.heads, at.head, key_block);
  uint32_t kept = 0;
  HADAL_UNROLL for (int i = 0; i < kRowsOfThread; ++i) {
    kept |= (ShuffleFrom(of_query, kRowsOfThread * at.group + i) >> (at.row % kRowsOfThread) & 1) << i;
  }
  return kept;
}

// Replaces scores by probabilities; 0 for pairs that do not exist.
template <typename T>
HADAL_DEVICE void ToProbabilities(const AttentionBackwardArgs<T>& args, const KeyThread& at, int64_t first_query,
                                  Pairs& pairs) {
  HADAL_UNROLL for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t query = first_query + kRowsOfThread * at.group + i;
    const bool seen = at.row < at.tile.rows && query < at.seeing_end && query >= at.first_seeing;
    const float log_sum_exp = seen ? Load(args.log_sum_exp.row(at.head) + query) : 0.0f;
    pairs.probability[i] = seen ? AttentionExp<T>(pairs.probability[i] - log_sum_exp) : 0.0f;
  }
}

template <typename T>
HADAL_DEVICE void StoreScoreGradients(const AttentionBackwardArgs<T>& args, const KeyThread& at, int64_t first_query,
                                      const Pairs& pairs, Shared<float> gradients) {
  float d_scores[kRowsOfThread];
  HADAL_UNROLL for (int i = 0; i < kRowsOfThread; ++i) {
    const int64_t query = first_query + kRowsOfThread * at.group + i;
    d_scores[i] = 0.0f;
    if (query >= at.tile.query_end) continue;
    const float first = Load(args.row_terms.row(2 * at.head) + query);
    const float mean = Load(args.row_terms.row(2 * at.head + 1) + query);
    d_scores[i] = pairs.probability[i] * ((DProbability(pairs, i, args.dropout) - first) - mean);
  }
  StoreScores(gradients, at.row, at.group, d_scores);
}

// Shared memory of the d_k, d_v kernel.
struct KeyTiles {
  Shared<float> keys, values;
  Shared<float> others;              // queries, d_output, queries
  Shared<float> weights, gradients;  // f·P, ds
};

// Computes d_k and d_v of a tile of keys in one head.
template <typename T, int kWidth>
HADAL_DEVICE void GradientsOfKeys(const AttentionBackwardArgs<T>& args, const AttentionTile& tile,
                                  const KeyTiles& tiles) {
  constexpr int kRows = kBlockRows<kWidth>;
  const auto [keys, values, others, weights, gradients] = tiles;
  KeyThread at;
  at.tile = tile;
  at.row = ThreadIndex() / kGroups, at.group = ThreadIndex() % kGroups, at.width = args.shape.head_width;
  const int64_t key_column = HeadOfBlock<kWidth>() * at.width;
  const int place = tile.first - tile.key_begin, queries = tile.query_end - tile.query_begin;
  const DeviceRotary& rotary = args.shape.rotary;
  const SeenRows all = QueriesOfKeys(args.shape, place, place + tile.rows - 1, queries),
                 own = QueriesOfKeys(args.shape, place + at.row, place + at.row, queries);
  at.first_seeing = tile.query_begin + own.begin, at.seeing_end = tile.query_begin + own.end;
  if (args.dropout.active()) at.position = Load(args.dropout.position);
  LoadTile<kWidth, kRows>(keys, args.k, at.tile.first, at.tile.key_end, key_column, at.width, 1.0f, rotary,
                          at.tile.key_begin);
  LoadTile<kWidth, kRows>(values, args.v, at.tile.first, at.tile.key_end, key_column, at.width, 1.0f);

  OwnColumns<kWidth> d_key, d_value;
  const auto add_queries = [&](int64_t query) {
    const int64_t column = at.head * at.width;
    Pairs pairs;
    const auto load_queries = [&] {
      LoadTile<kWidth, kOtherRows>(tiles.others, args.q, query, at.tile.query_end, column, at.width, ScaleOf(at.width),
                                   rotary, at.tile.query_begin);
    };
    Barrier();
    load_queries();
    Barrier();
    DotRows<kWidth>(keys, at.row, others, at.group, pairs.probability);
    ToProbabilities(args, at, query, pairs);
    if (args.dropout.active()) pairs.kept = KeptQueries(args, at, query);
    float dropped[kRowsOfThread];
    HADAL_UNROLL for (int i = 0; i < kRowsOfThread; ++i) {
      dropped[i] = pairs.kept >> i & 1 ? pairs.probability[i] * args.dropout.scale : 0.0f;
    }
    StoreScores(weights, at.row, at.group, dropped);
    Barrier();
    LoadTile<kWidth, kOtherRows>(others, args.d_output, query, at.tile.query_end, column, at.width, 1.0f);
    Barrier();
    DotRows<kWidth>(values, at.row, others, at.group, pairs.d_weight);
    AddWeightedRows<kWidth>(weights, at.row, others, at.group, d_value);
    StoreScoreGradients(args, at, query, pairs, gradients);
    Barrier();
    load_queries();
    Barrier();
    AddWeightedRows<kWidth>(gradients, at.row, others, at.group, d_key);
  };
  for (int h = 0; h < args.shape.group; ++h) {
    at.head = HeadOfBlock<kWidth>() * args.shape.group + h;
    for (int query = all.loop_begin(); query < all.end; query += kOtherRows) add_queries(tile.query_begin + query);
  }
  TurnBack<kWidth>(rotary, place + at.row, at.row < at.tile.rows, keys, at.row, at.group, d_key);
  if (at.row >= at.tile.rows) return;
  const int64_t key = at.tile.first + at.row;
  // queries already contain the scale
  StoreOwnColumns<kWidth>(d_key, 1.0f, args.d_k.row(key) + key_column, at.group, at.width);
  StoreOwnColumns<kWidth>(d_value, 1.0f, args.d_v.row(key) + key_column, at.group, at.width);
}

// With narrower heads four blocks fit into a multiprocessor's shared memory (sm_80), so the launch bounds limit
// registers for four blocks, too. 0: no bound.
template <typename T, int kWidth>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kBlockRows<kWidth>* kGroups, kWidth <= 64 ? 4 : 0)
    KeyValueGradientKernel(AttentionBackwardArgs<T> args) {
  constexpr int kRows = kBlockRows<kWidth>;
  HADAL_SHARED(float, keys, (kTileFloats<kWidth, kRows>));
  HADAL_SHARED(float, values, (kTileFloats<kWidth, kRows>));
  HADAL_SHARED(float, others, (kTileFloats<kWidth, kOtherRows>));
  HADAL_SHARED(float, weights, kRows* kScoreStride);
  HADAL_SHARED(float, gradients, kRows* kScoreStride);
  ForTilesOfBlock(args.key_tiles, args.key_tile_capacity, [&](const AttentionTile& tile) {
    const AttentionTile part = PartOfBlock<kWidth>(tile);
    if (part.rows > 0) GradientsOfKeys<T, kWidth>(args, part, {keys, values, others, weights, gradients});
  });
}

template <typename T, int kWidth>
void LaunchPlain(StreamHandle stream, const AttentionBackwardArgs<T>& args) {
  int64_t heads = args.shape.heads * kBlocksOfTile<kWidth>;
  LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, heads),
                       .blocks_y = heads,
                       .threads = kBlockRows<kWidth> * kGroups};
  if (args.query_tile_capacity > 0) Launch(stream, shape, QueryGradientKernel<T, kWidth>, args);
  heads = args.shape.key_heads() * kBlocksOfTile<kWidth>;
  shape.blocks_x = BlocksForTiles(args.shape, args.key_tile_capacity, heads);
  shape.blocks_y = heads;
  if (args.key_tile_capacity > 0) Launch(stream, shape, KeyValueGradientKernel<T, kWidth>, args);
}

}  // namespace

template <typename T>
void AttentionBackward(StreamHandle stream, const AttentionBackwardArgs<T>& args) {
  const AttentionShape& shape = args.shape;
  HADAL_CHECK_GE(shape.heads, 1);
  HADAL_CHECK_EQ(shape.heads % shape.group, 0);
  HADAL_CHECK_GE(shape.head_width, 1);
  HADAL_CHECK_LE(shape.head_width, kWidestHead);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
  if (args.query_tile_capacity > 0) {
    HADAL_CHECK(args.query_tiles && args.q && args.log_sum_exp && args.d_output && args.d_q && args.row_terms);
  }
  if (args.key_tile_capacity > 0) HADAL_CHECK(args.key_tiles && args.k && args.v && args.d_k && args.d_v);
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (OnTensorCores<T>(shape)) {
      TensorQueryGradient(stream, args);
      return TensorKeyValueGradients(stream, args);
    }
  }
  if (shape.head_width <= 64) {
    LaunchPlain<T, 64>(stream, args);
  } else {
    LaunchPlain<T, 128>(stream, args);
  }
}

template void AttentionBackward(StreamHandle, const AttentionBackwardArgs<float>&);
template void AttentionBackward(StreamHandle, const AttentionBackwardArgs<BFloat16>&);

}  // namespace hadal::cuda
