// Building blocks of the attention kernels: tiles of rows in shared memory, and products of one row with the rows of a
// tile.
//
// A block owns a tile of rows of one side (queries, or keys for d_k and d_v) and loops over tiles of the other side.
// Four threads (kGroups) share a row of the block's tile. For scores, each thread computes eight consecutive rows out
// of every 32 of the other side, so one Philox block holds the dropout draws of its eight keys. For weighted sums of
// rows, each thread computes every fourth group of four columns.
// Layout: a tile is [rows, kWidth] floats; columns beyond the head's width are 0. Rows are padded to kWidth + 4 floats,
// with 4 more every eight rows, so that the four threads of a row, which read rows 0, 8, 16 and 24 of the other side at
// once, access different banks.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/rotary_columns.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// Rows of a block. With wide heads two blocks share a tile, because of the size of shared memory.
template <int kWidth>
inline constexpr int kBlockRows = kWidth <= 64 ? kAttentionTileRows : kAttentionTileRows / 2;
template <int kWidth>
inline constexpr int kBlocksOfTile = kAttentionTileRows / kBlockRows<kWidth>;

// Returns the x size of a launch's grid: the number of blocks among which the list of tiles is divided. `heads`: the
// grid's y size. `tile_capacity`: the length of the list.
inline int64_t BlocksForTiles(const AttentionShape& shape, int64_t tile_capacity, int64_t heads) {
  const int64_t most = shape.most_blocks > heads ? shape.most_blocks / heads : 1;
  return tile_capacity < most ? tile_capacity : most;
}

// Calls compute(tile) for each tile of the block: BlockX, BlockX + BlocksX, … up to the end of the list. Every thread
// of the block must call it.
template <typename Compute>
HADAL_DEVICE void ForTilesOfBlock(DevicePointer<const AttentionTile> tiles, int64_t capacity, const Compute& compute) {
  for (int64_t i = BlockX(); i < capacity; i += BlocksX()) {
    const AttentionTile tile = Load(tiles + i);
    if (tile.rows == 0) return;
    if (i != BlockX()) Barrier();  // the previous tile's shared memory has been read
    compute(tile);
  }
}

// Returns the block's head.
template <int kWidth>
HADAL_DEVICE int64_t HeadOfBlock() {
  return BlockY() / kBlocksOfTile<kWidth>;
}
// Returns the block's part of `tile`; 0 rows if it has none.
template <int kWidth>
HADAL_DEVICE AttentionTile PartOfBlock(AttentionTile tile) {
  const int skipped = static_cast<int>(BlockY() % kBlocksOfTile<kWidth>) * kBlockRows<kWidth>;
  const int left = tile.rows - skipped;
  tile.first += skipped;
  tile.rows = left < 0 ? 0 : left < kBlockRows<kWidth> ? left : kBlockRows<kWidth>;
  return tile;
}

// Rows [begin, end) of the other side: the keys that queries `first` to `last` (inclusive) see, or the queries that
// see keys `first` to `last`. Rows count from the sentence's first row. loop_begin() is a multiple of kOtherRows.
struct SeenRows {
  int begin, end;

  HADAL_DEVICE int loop_begin() const { return begin / kAttentionTileRows * kAttentionTileRows; }
};
HADAL_DEVICE SeenRows KeysOfQueries(const AttentionShape& shape, int first, int last, int keys) {
  const int behind = shape.causal ? 0 : shape.reach;
  return {first > shape.reach ? first - shape.reach : 0, keys - 1 - last > behind ? last + behind + 1 : keys};
}
HADAL_DEVICE SeenRows QueriesOfKeys(const AttentionShape& shape, int first, int last, int queries) {
  const int before = shape.causal ? 0 : shape.reach;
  return {first > before ? first - before : 0, queries - 1 - last > shape.reach ? last + shape.reach + 1 : queries};
}

inline constexpr int kGroups = 4;                           // threads of a row
inline constexpr int kOtherRows = 32;                       // rows of the other side per iteration
inline constexpr int kRowsOfThread = kOtherRows / kGroups;  // of the other side, whose scores a thread computes
inline constexpr int kScoreStride = kOtherRows + 1;         // floats between two rows of scores

template <int kWidth>
HADAL_DEVICE int TileOffset(int row) {
  return row * (kWidth + 4) + row / 8 * 4;
}
template <int kWidth, int kRows>
inline constexpr int kTileFloats = kRows*(kWidth + 4) + kRows / 8 * 4;

template <typename T>
HADAL_DEVICE float AttentionExp(float x) {
  return std::is_same_v<T, float> ? Exp(x) : FastExp(x);
}

// Copies rows [first, first + kTileRows) and columns [column, column + width) of `from`, times `factor`. Rows from
// `end` on read as 0. With `rotary` the columns are rotated; row `begin` has position 0. Every thread of the block
// must call it and then Barrier.
template <int kWidth, int kTileRows, typename T>
HADAL_DEVICE void LoadTile(Shared<float> tile, const DeviceMatrix<const T>& from, int64_t first, int64_t end,
                           int64_t column, int width, float factor, const DeviceRotary& rotary = {},
                           int64_t begin = 0) {
  constexpr int kEights = kWidth / 8;
  const auto on_16_bytes = [](int64_t elements) { return elements * static_cast<int64_t>(sizeof(T)) % 16 == 0; };
  const bool aligned = width % 8 == 0 && on_16_bytes(column) && on_16_bytes(from.stride) &&
                       reinterpret_cast<uintptr_t>(from.data.address) % 16 == 0;
  for (int i = ThreadIndex(); i < kTileRows * kEights; i += ThreadsInBlock()) {
    const int row = i / kEights, eight = i % kEights;
    const int left = first + row < end ? width - 8 * eight : 0;
    const int count = left < 0 ? 0 : left > 8 ? 8 : left;
    Eight values;
    if (count > 0) {
      const DevicePointer<const T> source = from.row(first + row) + column + 8 * eight;
      values = aligned ? LoadEight<true>(source, count) : LoadEight<false>(source, count);
      if (rotary.half > 0) {
        HADAL_UNROLL for (int c = 0; c < 8; ++c) {
          if (c >= count) break;
          values.v[c] = TurnedColumn(rotary, source + (-8 * eight), 8 * eight + c, values.v[c], first + row - begin);
        }
      }
    }
    Vector16 low, high;
    HADAL_UNROLL for (int c = 0; c < 4; ++c) {
      low.word[c] = BitsOf(values.v[c] * factor);
      high.word[c] = BitsOf(values.v[c + 4] * factor);
    }
    StoreVector(tile + (TileOffset<kWidth>(row) + 8 * eight), low);
    StoreVector(tile + (TileOffset<kWidth>(row) + 8 * eight + 4), high);
  }
}

struct Four {
  float v[4];
};
HADAL_DEVICE Four LoadFour(Shared<float> from) {
  const Vector16 bits = LoadVector(from);
  return {{FloatOf(bits.word[0]), FloatOf(bits.word[1]), FloatOf(bits.word[2]), FloatOf(bits.word[3])}};
}

// products[j] = row `row` of `own` · row 8·group + j of `other`.
template <int kWidth>
HADAL_DEVICE void DotRows(Shared<float> own, int row, Shared<float> other, int group,
                          float (&products)[kRowsOfThread]) {
  HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) products[j] = 0.0f;
  for (int column = 0; column < kWidth; column += 4) {
    const Four a = LoadFour(own + (TileOffset<kWidth>(row) + column));
    HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) {
      const Four b = LoadFour(other + (TileOffset<kWidth>(kRowsOfThread * group + j) + column));
      HADAL_UNROLL for (int c = 0; c < 4; ++c) products[j] = MulAdd(a.v[c], b.v[c], products[j]);
    }
  }
}

// A thread's columns of a sum of rows: columns 16·k + 4·group to 16·k + 4·group + 3, for each k.
template <int kWidth>
struct OwnColumns {
  float v[kWidth / kGroups] = {};
};

// sum += Σ_j weights[row, j] · row j of `other`, j ascending.
template <int kWidth>
HADAL_DEVICE void AddWeightedRows(Shared<float> weights, int row, Shared<float> other, int group,
                                  OwnColumns<kWidth>& sum) {
  for (int j = 0; j < kOtherRows; ++j) {
    const float weight = weights[row * kScoreStride + j];
    HADAL_UNROLL for (int k = 0; k < kWidth / 16; ++k) {
      const Four values = LoadFour(other + (TileOffset<kWidth>(j) + 16 * k + 4 * group));
      HADAL_UNROLL for (int c = 0; c < 4; ++c) sum.v[4 * k + c] = MulAdd(weight, values.v[c], sum.v[4 * k + c]);
    }
  }
}

// Rotates a thread's columns of a gradient back, by the angles of `position`. `exists`: false for rows after the
// tile's last one, which have no position. `tile` [rows of the block, kWidth] is overwritten. Every thread of the block
// must call it.
template <int kWidth>
HADAL_DEVICE void TurnBack(const DeviceRotary& rotary, int64_t position, bool exists, Shared<float> tile, int row,
                           int group, OwnColumns<kWidth>& values) {
  if (rotary.half == 0) return;
  Barrier();  // the tile has been read
  HADAL_UNROLL for (int k = 0; k < kWidth / 16; ++k) {
    Vector16 four;
    HADAL_UNROLL for (int c = 0; c < 4; ++c) four.word[c] = BitsOf(values.v[4 * k + c]);
    StoreVector(tile + (TileOffset<kWidth>(row) + 16 * k + 4 * group), four);
  }
  Barrier();
  if (!exists) return;
  const DevicePointer<const float> angles = rotary.angles.row(position);
  HADAL_UNROLL for (int i = 0; i < kWidth / kGroups; ++i) {
    const int column = 16 * (i / 4) + 4 * group + i % 4;
    if (column >= 2 * rotary.half) continue;
    const bool is_high = column >= rotary.half;
    const int c = is_high ? column - rotary.half : column;
    const float other = tile[TileOffset<kWidth>(row) + (is_high ? c : c + rotary.half)];
    const float cosine = Load(angles + c), sine = -Load(angles + (rotary.half + c));
    values.v[i] =
        is_high ? Turned(other, values.v[i], cosine, sine).high : Turned(values.v[i], other, cosine, sine).low;
  }
}

template <int kWidth, typename T>
HADAL_DEVICE void StoreOwnColumns(const OwnColumns<kWidth>& values, float factor, DevicePointer<T> row, int group,
                                  int width) {
  const bool aligned = width % 4 == 0 && reinterpret_cast<uintptr_t>(row.address) % (4 * sizeof(T)) == 0;
  HADAL_UNROLL for (int k = 0; k < kWidth / 16; ++k) {
    const int first = 16 * k + 4 * group;
    float run[4];
    HADAL_UNROLL for (int c = 0; c < 4; ++c) run[c] = values.v[4 * k + c] * factor;
    if (aligned) {
      if (first < width) StoreFourAligned(row + first, run);
      continue;
    }
    HADAL_UNROLL for (int c = 0; c < 4; ++c) {
      if (first + c < width) Store(row + (first + c), FromFloat<T>(run[c]));
    }
  }
}

HADAL_DEVICE void StoreScores(Shared<float> scores, int row, int group, const float (&values)[kRowsOfThread]) {
  HADAL_UNROLL for (int j = 0; j < kRowsOfThread; ++j) scores[row * kScoreStride + kRowsOfThread * group + j] =
      values[j];
}

// Returns a mask with bit j, j < 8, set if `first` + j < `end`.
HADAL_DEVICE uint32_t BitsBelow(int first, int end) {
  const int count = end - first;
  return count >= kRowsOfThread ? 0xFFu : count > 0 ? (1u << count) - 1 : 0u;
}
// Returns a mask with bit j, j < 8, set if `first` + j is one of `seen`.
HADAL_DEVICE uint32_t BitsOfSeen(int first, const SeenRows& seen) {
  return BitsBelow(first, seen.end) & ~BitsBelow(first, seen.begin);
}

// Returns the sum of x over the four threads of a row.
HADAL_DEVICE float SumOfRow(float x) {
  x += ShuffleXor(x, 1);
  return x + ShuffleXor(x, 2);
}

// Returns a mask with bit j set if dropout keeps key 8·key_block + j of this query and head.
HADAL_DEVICE uint32_t KeptKeys(const DeviceDropout& dropout, const RandomPosition& at, int64_t query, int heads,
                               int64_t head, int64_t key_block) {
  const uint32_t block = static_cast<uint32_t>(query * heads + head);
  return KeptBits(DrawEight(at, block, dropout.site | static_cast<uint32_t>(key_block) << 19), dropout.threshold);
}

}  // namespace hadal::cuda
