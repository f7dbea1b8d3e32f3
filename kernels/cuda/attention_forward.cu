#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/tensor_attention.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr float kLowest = -3.4028234663852886e38f;  // a row's maximum before its first key

// A row's softmax so far; the same in its four threads.
struct OnlineSoftmax {
  float maximum = kLowest;
  float sum = 0.0f;  // Σ_j e^(s_j − maximum)
};

// Replaces a thread's eight scores by weights e^(s − maximum), 0 if `seen` lacks the bit. Returns the factor for older
// sums.
template <typename T>
HADAL_DEVICE float Advance(uint32_t seen, float (&scores)[kRowsOfThread], OnlineSoftmax& softmax) {
  float maximum = softmax.maximum;
  HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
    if ((seen >> j & 1) && scores[j] > maximum) maximum = scores[j];
  }
  HADAL_UNROLL for (int mask = 1; mask < kGroups; mask *= 2) {
    const float other = ShuffleXor(maximum, mask);
    maximum = other > maximum ? other : maximum;
  }
  float sum = 0.0f;
  HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
    scores[j] = seen >> j & 1 ? AttentionExp<T>(scores[j] - maximum) : 0.0f;
    sum += scores[j];
  }
  const float correction = AttentionExp<T>(softmax.maximum - maximum);
  softmax.sum = MulAdd(softmax.sum, correction, SumOfRow(sum));
  softmax.maximum = maximum;
  return correction;
}

// The block's shared memory.
struct Tiles {
  Shared<float> queries, others, weights;  // others: keys, then values
};

template <typename T, int kWidth>
HADAL_DEVICE void AttendQueries(const AttentionForwardArgs<T>& args, const AttentionTile& tile, const Tiles& tiles) {
  constexpr int kRows = kBlockRows<kWidth>;
  const auto [queries, others, weights] = tiles;
  const int width = args.shape.head_width, row = ThreadIndex() / kGroups, group = ThreadIndex() % kGroups;
  const int64_t head = HeadOfBlock<kWidth>(), column = head * width, query = tile.first + row;
  const int64_t key_column = head / args.shape.group * width;
  const DeviceRotary& rotary = args.shape.rotary;
  const float scale = 1.0f / SquareRoot(static_cast<float>(width));
  RandomPosition position;
  if (args.dropout.active()) position = Load(args.dropout.position);
  LoadTile<kWidth, kRows>(queries, args.q, tile.first, tile.query_end, column, width, scale, rotary, tile.query_begin);
  const int first_place = tile.first - tile.query_begin, keys = tile.key_end - tile.key_begin;
  const SeenRows all = KeysOfQueries(args.shape, first_place, first_place + tile.rows - 1, keys),
                 own = KeysOfQueries(args.shape, first_place + row, first_place + row, keys);
  OnlineSoftmax softmax;
  OwnColumns<kWidth> output;
  for (int key = all.loop_begin(); key < all.end; key += kOtherRows) {
    const int64_t first_key = tile.key_begin + key;
    Barrier();  // the previous iteration's values have been read
    LoadTile<kWidth, kOtherRows>(others, args.k, first_key, tile.key_end, key_column, width, 1.0f, rotary,
                                 tile.key_begin);
    Barrier();
    float scores[kRowsOfThread];
    DotRows<kWidth>(queries, row, others, group, scores);
    const uint32_t seen = BitsOfSeen(key + kRowsOfThread * group, own);
    const float correction = Advance<T>(seen, scores, softmax);
    HADAL_UNROLL for (int c = 0; c < kWidth / kGroups; ++c) output.v[c] *= correction;
    if (args.dropout.active()) {
      const int64_t key_block = key / kRowsOfThread + group;
      const uint32_t kept = KeptKeys(args.dropout, position, query, args.shape.heads, head, key_block);
      HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
        scores[j] = kept >> j & 1 ? scores[j] * args.dropout.scale : 0.0f;
      }
    }
    StoreScores(weights, row, group, scores);
    Barrier();  // the keys have been read, the weights are written
    LoadTile<kWidth, kOtherRows>(others, args.v, first_key, tile.key_end, key_column, width, 1.0f);
    Barrier();
    AddWeightedRows<kWidth>(weights, row, others, group, output);
  }
  if (row >= tile.rows) return;
  const float inverse = softmax.sum == 0.0f ? 0.0f : 1.0f / softmax.sum;  // no keys: output 0
  StoreOwnColumns<kWidth>(output, inverse, args.output.row(query) + column, group, width);
  if (group == 0) Store(args.log_sum_exp.row(head) + query, softmax.maximum + Log(softmax.sum));
}

template <typename T, int kWidth>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kBlockRows<kWidth>* kGroups)
    AttentionForwardKernel(AttentionForwardArgs<T> args) {
  constexpr int kRows = kBlockRows<kWidth>;
  HADAL_SHARED(float, queries, (kTileFloats<kWidth, kRows>));
  HADAL_SHARED(float, others, (kTileFloats<kWidth, kOtherRows>));
  HADAL_SHARED(float, weights, kRows* kScoreStride);
  ForTilesOfBlock(args.query_tiles, args.query_tile_capacity, [&](const AttentionTile& tile) {
    const AttentionTile part = PartOfBlock<kWidth>(tile);
    if (part.rows > 0) AttendQueries<T, kWidth>(args, part, {queries, others, weights});
  });
}

template <typename T, int kWidth>
void LaunchPlain(StreamHandle stream, const AttentionForwardArgs<T>& args) {
  const int64_t heads = args.shape.heads * kBlocksOfTile<kWidth>;
  const LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, heads),
                             .blocks_y = heads,
                             .threads = kBlockRows<kWidth> * kGroups};
  Launch(stream, shape, AttentionForwardKernel<T, kWidth>, args);
}

}  // namespace

template <typename T>
void AttentionForward(StreamHandle stream, const AttentionForwardArgs<T>& args) {
  if (args.query_tile_capacity == 0) return;
  HADAL_CHECK_GE(args.shape.heads, 1);
  HADAL_CHECK_GE(args.shape.head_width, 1);
  HADAL_CHECK_LE(args.shape.head_width, kWidestHead);
  HADAL_CHECK_EQ(args.shape.heads % args.shape.group, 0);
  HADAL_CHECK(args.query_tiles && args.q && args.k && args.v && args.output && args.log_sum_exp);
  HADAL_CHECK(!args.dropout.active() || args.dropout.position);
  if constexpr (std::is_same_v<T, BFloat16>) {
    if (OnTensorCores<T>(args.shape)) return TensorAttentionForward(stream, args);
  }
  if (args.shape.head_width <= 64) {
    LaunchPlain<T, 64>(stream, args);
  } else {
    LaunchPlain<T, 128>(stream, args);
  }
}

template void AttentionForward(StreamHandle, const AttentionForwardArgs<float>&);
template void AttentionForward(StreamHandle, const AttentionForwardArgs<BFloat16>&);

AttentionTiles CutIntoTiles(const std::vector<int32_t>& query_offsets, const std::vector<int32_t>& key_offsets) {
  HADAL_CHECK_EQ(query_offsets.size(), key_offsets.size());
  constexpr int32_t rows = kAttentionTileRows;
  AttentionTiles tiles;
  for (size_t n = 0; n + 1 < query_offsets.size(); ++n) {
    const AttentionTile sentence = {0, 0, query_offsets[n], query_offsets[n + 1], key_offsets[n], key_offsets[n + 1]};
    const auto cut = [&](int32_t begin, int32_t end, std::vector<AttentionTile>& to) {
      for (int32_t first = begin; first < end; first += rows) {
        to.push_back(sentence);
        to.back().first = first;
        to.back().rows = end - first < rows ? end - first : rows;
      }
    };
    cut(sentence.query_begin, sentence.query_end, tiles.of_queries);
    cut(sentence.key_begin, sentence.key_end, tiles.of_keys);
  }
  return tiles;
}

}  // namespace hadal::cuda
