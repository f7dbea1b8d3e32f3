#include "kernels/cpu/row_product.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_product.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/partial_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using Tag = hn::ScalableTag<float>;
using Vec = hn::Vec<Tag>;

constexpr int kLanes = hn::MaxLanes(Tag());
// A tile of y. With AVX-512's 32 registers its sums fill one vector.
constexpr int kTileColumns = 4;
constexpr int kTileRows = kLanes >= 16 ? 4 : 2;
constexpr int kSums = kTileRows * kTileColumns;

struct Tile {
  const float* x[kTileRows];
  const float* weight[kTileColumns];
  const float* next_weight[kTileColumns];  // of the tile that follows
};

// Returns the sums of neighbouring lanes: of a in the lower half, of b in the upper half.
HWY_INLINE Vec PairSums(Vec a, Vec b) {
#if HWY_TARGET == HWY_SCALAR
  return a;  // never called
#else
  const Tag d;
  return hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
#endif
}

// Adds up the lanes of each of `count` vectors: sums[i · lanes + l] = Σ lanes of vector i · lanes + l.
template <int kCount>
HWY_INLINE void SumLanes(const Vec (&vectors)[kCount], float* HWY_RESTRICT sums) {
  const Tag d;
  Vec level[kCount];
#pragma GCC unroll 16
  for (int i = 0; i < kCount; ++i) level[i] = vectors[i];
#pragma GCC unroll 4
  for (int width = kLanes; width > 1; width /= 2) {
    const int pairs = kCount * width / kLanes / 2;
#pragma GCC unroll 8
    for (int i = 0; i < pairs; ++i) level[i] = PairSums(level[2 * i], level[2 * i + 1]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kCount / kLanes; ++i) hn::StoreU(level[i], d, sums + i * kLanes);
}

// sums[i · kTileColumns + j] = x[i] · weight[j]. kFetch: loads the next tile's weights into the cache meanwhile; the
// CPU does not foresee four rows of weights at once, and steps of few rows wait for nothing else.
template <bool kFetch>
HWY_INLINE void MultiplyTile(const Tile& tile, int64_t depth, float* HWY_RESTRICT sums) {
  const Tag d;
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
    for (int i = 0; i < kTileRows; ++i) {
      const Vec x = load(tile.x[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kTileColumns; ++j) {
        vectors[i * kTileColumns + j] = hn::MulAdd(x, w[j], vectors[i * kTileColumns + j]);
      }
    }
  };
  for (; k + kLanes <= depth; k += kLanes) add([&](const float* p) HWY_ATTR { return hn::LoadU(d, p + k); });
  if (k < depth) add([&](const float* p) HWY_ATTR { return LoadPartial(d, p + k, depth - k, 0.0f); });
  SumLanes(vectors, sums);
}

// y of one row and kTileColumns or, at the edge, fewer columns.
HWY_INLINE void StoreSums(const LinearForwardArgs& args, const float* HWY_RESTRICT sums, int64_t column, int64_t count,
                          float* HWY_RESTRICT y) {
  const float* const bias = args.bias.floats().data;
  const auto store = [&](auto d, int64_t j) HWY_ATTR {
    auto value = hn::LoadU(d, sums + j);
    if (bias != nullptr) value = hn::Add(value, hn::LoadU(d, bias + column + j));
    if (args.relu) value = hn::IfThenZeroElse(hn::Lt(value, hn::Zero(d)), value);  // keeps a NaN
    hn::StoreU(value, d, y + column + j);
  };
  constexpr hn::CappedTag<float, kTileColumns> d;
  if (count == kTileColumns && hn::MaxLanes(d) == kTileColumns) return store(d, 0);
  for (int64_t j = 0; j < count; ++j) store(OneFloatTag(), j);
}

// Columns [begin, end) of kTileRows rows from `row`. Tiles at the edges repeat the last row or column.
template <bool kFetch>
HWY_INLINE void MultiplyRows(const LinearForwardArgs& args, int64_t row, int64_t begin, int64_t end) {
  const ConstMatrix x = args.x.floats(), weight = args.weight.floats();
  const Matrix y = args.y.floats();
  const int64_t rows = std::min<int64_t>(kTileRows, x.rows - row);
  HWY_ALIGN float sums[kSums];
  Tile tile;
  for (int i = 0; i < kTileRows; ++i) tile.x[i] = x.row(row + std::min<int64_t>(i, rows - 1));
  for (int64_t column = begin; column < end; column += kTileColumns) {
    for (int j = 0; j < kTileColumns; ++j) {
      tile.weight[j] = weight.row(std::min(column + j, end - 1));
      tile.next_weight[j] = weight.row(std::min(column + kTileColumns + j, weight.rows - 1));
    }
    MultiplyTile<kFetch>(tile, x.columns, sums);
    const int64_t columns = std::min<int64_t>(kTileColumns, end - column);
    for (int64_t i = 0; i < rows; ++i) StoreSums(args, sums + i * kTileColumns, column, columns, y.row(row + i));
  }
}

}  // namespace

// Columns [begin, end) of y. The weights of a group of columns stay in the L1 or L2 cache while the rows pass; the rows
// of a block stay in the L2 cache while the weights pass.
void RowProductColumns(const LinearForwardArgs& args, int64_t begin, int64_t end) {
  constexpr int64_t kGroupColumns = 16, kBlockFloats = int64_t{1} << 16;
  const int64_t rows = args.x.rows;
  const int64_t block = std::max<int64_t>(kBlockFloats / args.x.columns / kTileRows, 1) * kTileRows;
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t last = std::min(first + block, rows);
    for (int64_t column = begin; column < end; column += kGroupColumns) {
      const int64_t next = std::min(column + kGroupColumns, end);
      MultiplyRows<true>(args, first, column, next);
      for (int64_t row = first + kTileRows; row < last; row += kTileRows) {
        MultiplyRows<false>(args, row, column, next);
      }
    }
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
