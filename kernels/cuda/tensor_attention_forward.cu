#include "kernels/cuda/tensor_attention.h"
#include "kernels/cuda/tensor_attention_copy.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr float kLowest = -3.4028234663852886e38f;  // a row's maximum before its first key

// The softmax so far of a lane's two rows; the same in the four lanes of a row.
struct OnlineSoftmax {
  float maximum[2] = {kLowest, kLowest};
  float sum[2] = {};         // Σ_j e^(s_j − maximum)
  float correction[2] = {};  // factor for older sums
};

// The keys of a block's sentence, and of the lane's queries. Keys are numbered from the sentence's first one.
struct QueryLane {
  int head, keys, place;  // place: of the block's first query
  SeenRows all;           // by the block's queries
  int own_end[2];         // each of the lane's queries sees no key from here on
};

HADAL_DEVICE QueryLane ThisQueryLane(const AttentionForwardArgs<BFloat16>& args, const AttentionTile& tile) {
  const FragmentLane lane;
  const int keys = tile.key_end - tile.key_begin, place = tile.first - tile.query_begin;
  QueryLane at = {.head = static_cast<int>(BlockY()),
                  .keys = keys,
                  .place = place,
                  .all = KeysOfQueries(args.shape, place, place + tile.rows - 1, keys)};
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    at.own_end[h] = KeysOfQueries(args.shape, place + lane.row(h), place + lane.row(h), keys).end;
  }
  return at;
}

// Replaces scores by weights e^(s − maximum), 0 if a query does not see a key.
HADAL_DEVICE void Advance(const QueryLane& at, int first_key, float scale, PairFragments& scores,
                          OnlineSoftmax& softmax) {
  const FragmentLane lane;
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    const int left = at.own_end[h] - first_key;
    float maximum = softmax.maximum[h];
    HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
      HADAL_UNROLL for (int e = 0; e < 2; ++e) {
        float& score = scores.c[j].v[2 * h + e];
        score *= scale;
        if (lane.other(j, e) < left && score > maximum) maximum = score;
      }
    }
    HADAL_UNROLL for (int mask = 1; mask < 4; mask *= 2) {
      const float other = ShuffleXor(maximum, mask);
      maximum = other > maximum ? other : maximum;
    }
    float sum = 0.0f;
    HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
      HADAL_UNROLL for (int e = 0; e < 2; ++e) {
        float& weight = scores.c[j].v[2 * h + e];
        weight = lane.other(j, e) < left ? FastExp(weight - maximum) : 0.0f;
        sum += weight;
      }
    }
    softmax.correction[h] = FastExp(softmax.maximum[h] - maximum);
    softmax.sum[h] = MulAdd(softmax.sum[h], softmax.correction[h], SumOfRow(sum));
    softmax.maximum[h] = maximum;
  }
}

// Sets the weights of pairs outside the mask to 0.
HADAL_DEVICE void DropPairs(uint32_t kept, PairFragments& weights) {
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      if (!(kept >> (4 * j + i) & 1)) weights.c[j].v[i] = 0.0f;
    }
  }
}

// Computes the output of the warp's queries, before the division by the softmax's sum and, with dropout, by the share
// that is kept.
template <int kWidth, bool kAligned>
HADAL_DEVICE void WalkKeys(const AttentionForwardArgs<BFloat16>& args, const AttentionTile& tile, const QueryLane& at,
                           const HeldRows<kWidth>& queries, Shared<Vector16> keys, Shared<Vector16> values,
                           OnlineSoftmax& softmax, RowSums<kWidth>& output) {
  const float scale = 1.0f / SquareRoot(static_cast<float>(kWidth));
  const int column = at.head / args.shape.group * kWidth;
  const int begin = at.all.loop_begin();
  RowReader<kWidth, kAligned> readers[] = {{args.k, tile.key_begin + begin, column, args.shape.rotary, begin},
                                           {args.v, tile.key_begin + begin, column}};
  for (int key = begin; key < at.all.end; key += kTensorRows) {
    LoadTiles(readers, at.keys - key, {keys, values});
    PairFragments pairs = DotFragments(queries, keys);
    HideFarKeys<true>(args.shape.reach, at.place, key, pairs);
    Advance(at, key, scale, pairs, softmax);
    HADAL_UNROLL for (int n = 0; n < kWidth / 8; ++n) {
      HADAL_UNROLL for (int i = 0; i < 4; ++i) output.c[n].v[i] *= softmax.correction[i / 2];
    }
    if (args.dropout.active()) {
      const int first_query = tile.first + FragmentLane().first_row;
      DropPairs(KeptOfQueries(args.dropout, first_query, args.shape.heads, at.head, key / 8), pairs);
    }
    AddWeightedFragments<kWidth>(pairs, values, output);
  }
}

// The block's tiles in shared memory.
struct Tiles {
  Shared<Vector16> queries, keys, values;  // queries: finally their output
};

template <int kWidth, bool kAligned>
HADAL_DEVICE void AttendQueries(const AttentionForwardArgs<BFloat16>& args, const AttentionTile& tile,
                                const Tiles& tiles) {
  const QueryLane at = ThisQueryLane(args, tile);
  const FragmentLane lane;
  const int column = at.head * kWidth;
  RowReader<kWidth, kAligned> readers[] = {
      {args.q, tile.first, column, args.shape.rotary, tile.first - tile.query_begin}};
  LoadTiles(readers, tile.rows, {tiles.queries});
  const HeldRows<kWidth> own(RowsInTile<kWidth>{tiles.queries});
  OnlineSoftmax softmax;
  RowSums<kWidth> output;
  WalkKeys<kWidth, kAligned>(args, tile, at, own, tiles.keys, tiles.values, softmax, output);

  const float scale = args.dropout.active() ? args.dropout.scale : 1.0f;
  float factor[2];
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    factor[h] = softmax.sum[h] == 0.0f ? 0.0f : scale / softmax.sum[h];  // no keys: output 0
    if (lane.t == 0 && lane.row(h) < tile.rows) {
      Store(args.log_sum_exp.row(at.head) + (tile.first + lane.row(h)), softmax.maximum[h] + Log(softmax.sum[h]));
    }
  }
  Barrier();  // without keys no other barrier separates reading the queries from overwriting them
  PutSums<kWidth>(output, factor, tiles.queries);
  Barrier();
  StoreTile<kWidth, kAligned>(tiles.queries, args.output, tile.first, tile.rows, column);
}

// Blocks per multiprocessor, which bounds a thread's registers: without the bound the compiler would keep more of what
// a block's tiles share in registers, and fewer blocks would fit.
template <int kWidth, bool kAligned>
inline constexpr int kForwardBlocks = kWidth == 32   ? 10
                                      : kWidth == 64 ? 8
                                      : kAligned     ? 6
                                                     : 4;

template <int kWidth, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kTensorThreads, (kForwardBlocks<kWidth, kAligned>))
    TensorForwardKernel(AttentionForwardArgs<BFloat16> args) {
  HADAL_SHARED(Vector16, queries, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, keys, kTileUnits<kWidth>);
  HADAL_SHARED(Vector16, values, kTileUnits<kWidth>);
  ForTilesOfBlock(args.query_tiles, args.query_tile_capacity, [&](const AttentionTile& tile) {
    AttendQueries<kWidth, kAligned>(args, tile, {queries, keys, values});
  });
}

template <bool kAligned>
auto ForwardKernelFor(int width) {
  return width == 32   ? TensorForwardKernel<32, kAligned>
         : width == 64 ? TensorForwardKernel<64, kAligned>
                       : TensorForwardKernel<128, kAligned>;
}

}  // namespace

void TensorAttentionForward(StreamHandle stream, const AttentionForwardArgs<BFloat16>& args) {
  const int width = args.shape.head_width;
  HADAL_CHECK(OnTensorCores<BFloat16>(args.shape));
  const LaunchShape shape = {.blocks_x = BlocksForTiles(args.shape, args.query_tile_capacity, args.shape.heads),
                             .blocks_y = args.shape.heads,
                             .threads = kTensorThreads};
  const bool aligned = AllRowsOn16Bytes(args.q, args.k, args.v, args.output);
  Launch(stream, shape, aligned ? ForwardKernelFor<true>(width) : ForwardKernelFor<false>(width), args);
}

}  // namespace hadal::cuda
