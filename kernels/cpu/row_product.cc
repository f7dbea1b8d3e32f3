#include "kernels/cpu/row_product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_product.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Vec = FloatVec;

// A tile of y: as many sums as fit into registers beside a row's x and the columns' weights; four rows because beams
// are often of 4.
constexpr int kTileRows = 4;
constexpr int kTileColumns = kFloatLanes >= 16 ? 4 : 3;
// Most terms that are summed before they are added to y.
constexpr int64_t kBlockTerms = 512;
// A group of columns: its weights, about kGroupWeights, stay in the L1 cache. Its width is a multiple of
// kLeastGroupColumns: of whole tiles and of the 4 columns that are stored at once.
constexpr int64_t kGroupWeights = kFloatLanes >= 16 ? 1 << 12 : 3 << 11;
constexpr int64_t kLeastGroupColumns = kFloatLanes >= 16 ? 4 : 12, kMostGroupColumns = 16 * kTileColumns;

struct Tile {
  const float* x[kTileRows];
  const float* weight[kTileColumns];
  const float* next_weight[kTileColumns];  // of the tile that follows
};

// sums[i · kTileColumns + j] = x[i] · weight[j], of kRows rows. kFetch: loads the next tile's weights into the cache
// meanwhile; the CPU does not foresee several rows of weights at once, and steps of few rows wait for nothing else.
template <int kRows, bool kFetch>
HWY_INLINE void MultiplyTile(const Tile& tile, int64_t terms, float* HWY_RESTRICT sums) {
  const FloatTag d;
  constexpr int kSums = kRows * kTileColumns;
  Vec vectors[kSums];
#pragma GCC unroll 16
  for (int s = 0; s < kSums; ++s) vectors[s] = hn::Zero(d);
  int64_t k = 0;
  const auto add = [&](auto load) HWY_ATTR {
    Vec w[kTileColumns];
#pragma GCC unroll 4
    for (int j = 0; j < kTileColumns; ++j) {
      w[j] = load(tile.weight[j]);
      if constexpr (kFetch) hwy::Prefetch(tile.next_weight[j] + k);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const Vec x = load(tile.x[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kTileColumns; ++j) {
        vectors[i * kTileColumns + j] = hn::MulAdd(x, w[j], vectors[i * kTileColumns + j]);
      }
    }
  };
  for (; k + kFloatLanes <= terms; k += kFloatLanes) add([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + k); });
  if (k < terms) add([&](const float* p) HWY_ATTR { return LoadPartial(d, p + k, terms - k, 0.0f); });
  SumLanes(vectors, sums);
}

// y[column] = or += sums[column − begin], of columns [begin, end).
template <bool kAdd>
HWY_INLINE void StoreSums(const LinearForwardArgs& args, const float* HWY_RESTRICT sums, int64_t begin, int64_t end,
                          float* HWY_RESTRICT y) {
  const float* const bias = args.bias.floats().data;
  const auto store = [&](auto d, int64_t column) HWY_ATTR {
    auto value = hn::LoadU(d, sums + column - begin);
    if constexpr (kAdd) value = hn::Add(hn::LoadU(d, y + column), value);
    if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + column));
    if (args.relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);  // keeps a NaN
    hn::StoreU(value, d, y + column);
  };
  constexpr hn::CappedTag<float, 4> few;  // groups of columns are narrow
  constexpr int64_t step = hn::MaxLanes(few);
  int64_t column = begin;
  for (; column + step <= end; column += step) store(few, column);
  for (; column < end; ++column) store(OneFloatTag(), column);
}

// Columns [begin, end), at most kMostGroupColumns, of kRows rows from `row`. The last tile repeats its last column.
template <bool kAdd, int kRows, bool kFetch>
void MultiplyRows(const LinearForwardArgs& args, int64_t row, int64_t begin, int64_t end) {
  const ConstMatrix x = args.x.floats(), weight = args.weight.floats();
  HWY_ALIGN float tile_sums[kRows * kTileColumns + kFloatLanes];
  HWY_ALIGN float sums[kRows][kMostGroupColumns + kTileColumns];
  Tile tile;
  for (int i = 0; i < kRows; ++i) tile.x[i] = x.row(row + i);
  for (int64_t column = begin; column < end; column += kTileColumns) {
    for (int j = 0; j < kTileColumns; ++j) {
      tile.weight[j] = weight.row(std::min(column + j, end - 1));
      tile.next_weight[j] = weight.row(std::min(column + kTileColumns + j, weight.rows - 1));
    }
    MultiplyTile<kRows, kFetch>(tile, x.columns, tile_sums);
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kTileColumns; ++j) sums[i][column - begin + j] = tile_sums[i * kTileColumns + j];
    }
  }
  for (int i = 0; i < kRows; ++i) StoreSums<kAdd>(args, sums[i], begin, end, args.y.floats().row(row + i));
}

// As MultiplyRows, of `rows` rows, fewer than a tile has.
template <bool kAdd>
void MultiplyLastRows(const LinearForwardArgs& args, int64_t row, int64_t rows, int64_t begin, int64_t end) {
  if (rows == 1) MultiplyRows<kAdd, 1, true>(args, row, begin, end);
  if (rows == 2) MultiplyRows<kAdd, 2, true>(args, row, begin, end);
  if (rows == 3) MultiplyRows<kAdd, 3, true>(args, row, begin, end);
}

// Columns [begin, end) of y. The weights of a group of columns stay in the L1 cache while the rows pass; the rows of a
// group stay in the L2 cache while the weights pass.
template <bool kAdd>
void MultiplyColumns(const LinearForwardArgs& args, int64_t begin, int64_t end) {
  const auto whole_tiles = [&](int64_t floats, int64_t width) {
    return std::max<int64_t>(floats / args.x.columns / width, 1) * width;
  };
  const int64_t group_columns = std::min(whole_tiles(kGroupWeights, kLeastGroupColumns), kMostGroupColumns);
  const int64_t group_rows = whole_tiles(int64_t{1} << 16, kTileRows);
  const int64_t rows = args.x.rows;
  for (int64_t first = 0; first < rows; first += group_rows) {
    const int64_t last = std::min(first + group_rows, rows);
    for (int64_t column = begin; column < end; column += group_columns) {
      const int64_t next = std::min(column + group_columns, end);
      int64_t row = first;
      if (row + kTileRows <= last) MultiplyRows<kAdd, kTileRows, true>(args, row, column, next), row += kTileRows;
      for (; row + kTileRows <= last; row += kTileRows) {
        MultiplyRows<kAdd, kTileRows, false>(args, row, column, next);
      }
      MultiplyLastRows<kAdd>(args, row, last - row, column, next);
    }
  }
}

}  // namespace

void RowProductColumns(const LinearForwardArgs& args, int64_t begin, int64_t end) {
  const int64_t depth = args.x.columns;
  for (int64_t first = 0; first < depth; first += kBlockTerms) {
    const int64_t count = std::min(kBlockTerms, depth - first);
    LinearForwardArgs block = args;
    block.x = args.x.Columns(first, count);
    block.weight = args.weight.Columns(first, count);
    if (first + count < depth) block.bias = {}, block.relu = false;
    first == 0 ? MultiplyColumns<false>(block, begin, end) : MultiplyColumns<true>(block, begin, end);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {

HWY_EXPORT(RowProductColumns);

void cpu::RowProduct(const Stream& stream, const LinearForwardArgs& args) {
  stream.ForRanges(args.y.columns, /*grain=*/16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(RowProductColumns)(args, begin, end);
  });
}

}  // namespace hadal

#endif  // HWY_ONCE
