#include "kernels/cuda/tensor_attention.h"
#include "kernels/cuda/tensor_attention_copy.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kNone = 0x7FFFFFFF;

// The queries of a block's sentence, and the lane's two keys, in the d_k, d_v kernel. Queries are numbered from the
// sentence's first one.
struct KeyLane {
  int head, queries, first_query, place;  // first_query: in the batch; place: of the block's first key
  SeenRows all;                           // of the block's keys
  int key_block;                          // of the warp's first key
  int first_seeing[2];                    // first query that sees each key; kNone if the key does not exist
};

HADAL_DEVICE KeyLane ThisKeyLane(const AttentionBackwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int place = tile.first - tile.key_begin;
  KeyLane at = {.head = 0,
                .queries = tile.query_end - tile.query_begin,
                .first_query = tile.query_begin,
                .place = place,
                .all = QueriesOfKeys(args.shape, place, place + tile.rows - 1, tile.query_end - tile.query_begin),
                .key_block = (place + lane.first_row) / 8};
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    const int own = place + lane.row(h);
    at.first_seeing[h] = lane.row(h) >= tile.rows ? kNone : QueriesOfKeys(args.shape, own, own, at.queries).begin;
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
                             const BackwardTiles& tiles, Shared<float> numbers, RowSums<kWidth>& d_key,
                             RowSums<kWidth>& d_value) {
  const FragmentLane lane;
  Pairs pairs;
  pairs.probability = DotFragments(RowsInTile<kWidth>{tiles.keys}, tiles.queries);
  HideFarKeys<false>(args.shape.reach, at.place, query, pairs.probability);
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
                                  const BackwardTiles& tiles, Shared<float> numbers) {
  KeyLane at = ThisKeyLane(args, tile);
  const int key_column = static_cast<int>(BlockY()) * kWidth, begin = at.all.loop_begin();
  RowReader<kWidth, kAligned> own[] = {{args.k, tile.first, key_column, args.shape.rotary, at.place},
                                       {args.v, tile.first, key_column}};
  LoadTiles(own, tile.rows, {tiles.keys, tiles.values});

  RowSums<kWidth> d_key, d_value;
  HADAL_UNROLL_BY(1) for (int h = 0; h < args.shape.group; ++h) {
    at.head = static_cast<int>(BlockY()) * args.shape.group + h;
    const int column = at.head * kWidth, first = at.first_query + begin;
    RowReader<kWidth, kAligned> readers[] = {{args.q, first, column, args.shape.rotary, begin},
                                             {args.d_output, first, column}};
    for (int query = begin; query < at.all.end; query += kTensorRows) {
      const QueryNumbers own_numbers = LoadNumbers(args, at.head, at.first_query + query, at.queries - query);
      LoadTiles(readers, at.queries - query, {tiles.queries, tiles.d_outputs},
                [&] { PutNumbers(own_numbers, numbers); });
      AddQueries<kWidth>(args, at, query, tiles, numbers, d_key, d_value);
    }
  }
  TurnBack<kWidth>(args.shape.rotary, at.place, tile.rows, d_key);
  Barrier();  // all keys and values have been read
  const float kept = args.dropout.active() ? args.dropout.scale : 1.0f;
  PutSums<kWidth>(d_key, {ScoreScale<kWidth>(), ScoreScale<kWidth>()}, tiles.keys);
  PutSums<kWidth>(d_value, {kept, kept}, tiles.values);
  Barrier();
  StoreTile<kWidth, kAligned>(tiles.keys, args.d_k, tile.first, tile.rows, key_column);
  StoreTile<kWidth, kAligned>(tiles.values, args.d_v, tile.first, tile.rows, key_column);
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
auto KeyValueKernelFor(int width) {
  return width == 32   ? TensorKeyValueKernel<32, kAligned>
         : width == 64 ? TensorKeyValueKernel<64, kAligned>
                       : TensorKeyValueKernel<128, kAligned>;
}

}  // namespace

void TensorKeyValueGradients(StreamHandle stream, const AttentionBackwardArgs<BFloat16>& args) {
  const int width = args.shape.head_width;
  HADAL_CHECK(OnTensorCores<BFloat16>(args.shape));
  if (args.key_tile_capacity == 0) return;
  const LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.key_tile_capacity, args.shape.key_heads()),
                             .blocks_y = args.shape.key_heads(),
                             .threads = kTensorThreads};
  const bool aligned = AllRowsOn16Bytes(args.q, args.k, args.v, args.d_output, args.d_q, args.d_k, args.d_v);
  Launch(stream, shape, aligned ? KeyValueKernelFor<true>(width) : KeyValueKernelFor<false>(width), args);
}

}  // namespace hadal::cuda
