#include "kernels/cpu/product.h"

#include <algorithm>
#include <limits>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/product.cc"
#include "hwy/foreach_target.h"
// Must be included after foreach_target.h.
#include "hwy/cache_control.h"
#include "kernels/cpu/columns-inl.h"
#include "kernels/cpu/partial_vector-inl.h"
#include "kernels/cpu/tile_copy-inl.h"
#include "kernels/linear.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {
namespace {

using cpu::kProductBlock;
using cpu::ProductArgs;
using cpu::ProductForm;
using cpu::ProductPart;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr int64_t kTileColumns = 2 * kLanes;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4  // 16 vector registers
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 14;
#endif
// Terms that a tile takes at once: A's rows and a panel of B take 44 KiB, of the L1 cache if it has 48.
constexpr int64_t kTileTerms = std::min(kProductBlock, 8192 / kTileColumns);
// Panels of B of kProductBlock terms: 512 KiB on AVX-512, 256 KiB on AVX2, of the L2 cache.
constexpr int64_t kPanels = 8;
constexpr int64_t kBlockColumns = kPanels * kTileColumns;
// Between rows of A's copy: no multiple of the distance of addresses that share a set of the L1 cache.
constexpr int64_t kRowStride = kTileTerms + 16;
constexpr int64_t kLine = 64 / sizeof(float);  // of a cache line
// Between terms of A's copy: whole vectors.
constexpr int64_t kTermStride = (kTileRows + kLanes - 1) / kLanes * kLanes;
// Rows of C whose terms of A are copied at once, if A is stored by terms: whole cache lines, and few pages at a time.
constexpr int64_t kChunkTiles = 64 / kTileRows + 1, kChunkRows = kChunkTiles * kTileRows;
constexpr int64_t kChunkFloats = kProductBlock * kTermStride;  // of a tile

// Floats by which panels are loaded in advance that are read once.
constexpr int64_t kAhead = 1024;

// Rows of A's copy by panels of B.
struct Block {
  const float* a;       // rows first: [kTileRows, kRowStride]; terms first: [terms, kTermStride]
  const float* panels;  // [panels, panel_stride / kTileColumns, kTileColumns], of which `terms` terms
  int64_t panel_stride, terms;
  const float* from;  // where the chains begin, of C's shape; null: 0
  int64_t from_stride;
  bool add;  // adds the chains to C
  Matrix c;
  const float* next;             // what A's next copy is made from: the first panel's tile loads it into the L2 cache
  int64_t next_step, next_wrap;  // from one term to the next, and after each kLine
  bool reads_panels_once;        // from memory, so that their next terms are loaded instead
};

template <bool kTermsFirst, int kRows>
HWY_INLINE void MultiplyTile(const Block& block, const float* HWY_RESTRICT b, const float* from, int64_t from_stride,
                             float* c, int64_t c_stride) {
  const FloatTag d;
  const float* HWY_RESTRICT a = block.a;
  const bool first = b == block.panels;
  const float* next = block.next;
  int64_t next_step = first ? block.next_step : 0, next_wrap = first ? block.next_wrap : 0;
  if (kRows < kTileRows && block.reads_panels_once) next = b + kAhead, next_step = kTileColumns, next_wrap = 0;
  FloatVec sums[kRows][2];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    if (from != nullptr) {
      sums[i][0] = hn::LoadU(d, from + i * from_stride);
      sums[i][1] = hn::LoadU(d, from + i * from_stride + kLanes);
    } else {
      sums[i][0] = sums[i][1] = hn::Zero(d);
    }
  }
  if (block.add) {
    for (int i = 0; i < kRows; ++i) hwy::Prefetch(c + i * c_stride), hwy::Prefetch(c + i * c_stride + kLanes);
  }
  for (int64_t terms = block.terms; terms > 0; terms -= kLine, next += next_wrap) {
    for (int64_t k = std::min(terms, kLine); k > 0; --k, next += next_step) {
      __builtin_prefetch(next, 0, 2);
      if (kRows < kTileRows && kTileColumns > kLine) __builtin_prefetch(next + kLine, 0, 2);
      const FloatVec b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
        const FloatVec element = hn::Set(d, a[kTermsFirst ? i : i * kRowStride]);
        sums[i][0] = hn::MulAdd(element, b0, sums[i][0]);
        sums[i][1] = hn::MulAdd(element, b1, sums[i][1]);
      }
      a += kTermsFirst ? kTermStride : 1;
      b += kTileColumns;
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
    float* const to = c + i * c_stride;
    if (block.add) {
      sums[i][0] = hn::Add(hn::LoadU(d, to), sums[i][0]);
      sums[i][1] = hn::Add(hn::LoadU(d, to + kLanes), sums[i][1]);
    }
    hn::StoreU(sums[i][0], d, to);
    hn::StoreU(sums[i][1], d, to + kLanes);
  }
}

// to[i, j] = from[i, j]
HWY_INLINE void CopyTo(const float* from, int64_t from_stride, float* to, int64_t to_stride, int64_t rows,
                       int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[i * to_stride + j] = from[i * from_stride + j];
  }
}

// Columns [column, …) of C, fewer than a tile's, by a copy of them.
template <bool kTermsFirst, int kRows>
HWY_NOINLINE void MultiplyEdge(const Block& block, const float* panel, int64_t column) {
  HWY_ALIGN float edge[kRows * kTileColumns] = {}, start[kRows * kTileColumns] = {};
  const int64_t columns = block.c.columns - column;
  if (block.add) CopyTo(block.c.data + column, block.c.stride, edge, kTileColumns, kRows, columns);
  if (block.from != nullptr) CopyTo(block.from + column, block.from_stride, start, kTileColumns, kRows, columns);
  MultiplyTile<kTermsFirst, kRows>(block, panel, start, kTileColumns, edge, kTileColumns);
  CopyTo(edge, kTileColumns, block.c.data + column, block.c.stride, kRows, columns);
}

template <bool kTermsFirst, int kRows>
void MultiplyRows(const Block& block) {
  const float* panel = block.panels;
  int64_t column = 0;
  for (; column + kTileColumns <= block.c.columns; column += kTileColumns, panel += block.panel_stride) {
    MultiplyTile<kTermsFirst, kRows>(block, panel, block.from == nullptr ? nullptr : block.from + column,
                                     block.from_stride, block.c.data + column, block.c.stride);
  }
  if (column < block.c.columns) MultiplyEdge<kTermsFirst, kRows>(block, panel, column);
}

// Selects the template for block.c.rows.
template <bool kTermsFirst, int kRows = kTileRows>
HWY_INLINE void MultiplyBlock(const Block& block) {
  if constexpr (kRows > 0) {
    if (block.c.rows == kRows) return MultiplyRows<kTermsFirst, kRows>(block);
    MultiplyBlock<kTermsFirst, kRows - 1>(block);
  }
}

// Copies rows [row, row + rows) and the terms of A.
void PackRowsOfA(const ConstMatrix& a, float* HWY_RESTRICT to) {
  const FloatTag d;
  for (int64_t i = 0; i < a.rows; ++i, to += kRowStride) {
    const float* from = a.row(i);
    int64_t k = 0;
    for (; k + kLanes <= a.columns; k += kLanes) hn::Store(hn::LoadU(d, from + k), d, to + k);
    for (; k < a.columns; ++k) to[k] = from[k];
  }
}

// The same of A stored by terms, for up to kChunkRows rows of C: [tiles, terms, kTermStride].
void PackTermsOfA(const ConstMatrix& a, int64_t row, float* HWY_RESTRICT to) {
  const FloatTag d;
  const int64_t left = a.columns - row, rows = std::min(kChunkRows, left);
  // Tiles after these would read beyond the row.
  const int64_t whole = std::max<int64_t>(0, std::min(rows, left - kTermStride + kTileRows)) / kTileRows * kTileRows;
  for (int64_t k = 0; k < a.rows; ++k, to += kTermStride) {
    const float* from = a.row(k) + row;
    float* tile = to;
    int64_t i = 0;
    for (; i < whole; i += kTileRows, tile += kChunkFloats) {
      for (int64_t j = 0; j < kTermStride; j += kLanes) hn::Store(hn::LoadU(d, from + i + j), d, tile + j);
    }
    for (; i < rows; i += kTileRows, tile += kChunkFloats) {
      for (int64_t j = 0; j < std::min(kTermStride, left - i); j += kLanes) {
        hn::Store(LoadPartial(d, from + i + j, std::min(kLanes, left - i - j), 0.0f), d, tile + j);
      }
    }
  }
}

// Copies `b`, a block of B [terms, columns], into panels; columns after the last are 0.
void PackColumns(const ConstMatrix& b, float* HWY_RESTRICT panels, int64_t panel_stride) {
  const FloatTag d;
  const int64_t whole = b.columns / kTileColumns * kTileColumns, last = b.columns - whole;
  for (int64_t k = 0; k < b.rows; ++k) {
    const float* row = b.row(k);
    float* to = panels + k * kTileColumns;
    for (int64_t j = 0; j < whole; j += kTileColumns, to += panel_stride) {
      for (int64_t i = 0; i < kTileColumns; i += kLine) hwy::Prefetch(row + 8 * b.stride + j + i);
      hn::Store(hn::LoadU(d, row + j), d, to);
      hn::Store(hn::LoadU(d, row + j + kLanes), d, to + kLanes);
    }
    if (last == 0) continue;
    std::copy_n(row + whole, last, to);
    std::fill(to + last, to + kTileColumns, 0.0f);
  }
}

// The same with `b` transposed, [columns, terms].
void PackRows(const ConstMatrix& b, float* HWY_RESTRICT panels, int64_t panel_stride) {
  for (int64_t j = 0; j < b.rows; j += kTileColumns, panels += panel_stride) {
    const int64_t count = std::min(kTileColumns, b.rows - j);
    TransposeTile(b.Rows(j, count), 1.0f, panels, kTileColumns);
    if (count > kLanes) continue;
    for (int64_t k = 0; k < b.columns; ++k) {
      hn::Store(hn::Zero(FloatTag()), FloatTag(), panels + k * kTileColumns + kLanes);
    }
  }
}

// Columns [column, column + lanes) of y = x·Wᵀ, of kRows rows. kClamp: only the columns that y has. REQUIRES:
// x.columns a multiple of 4.
template <int kRows, bool kClamp>
HWY_INLINE void MultiplyFewRowsTile(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y, int64_t column) {
  const FloatTag d;
  FloatVec sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(d);
  for (int64_t k = 0; k < x.columns; k += 4) {
    // Hardware prefetchers do not follow so many rows. Every 16 terms: one line of each row of the next tile.
    for (int64_t i = 0; i < kLanes / 4; ++i) {
      hwy::Prefetch(weight.row(std::min(column + kLanes + k % 16 / 4 * (kLanes / 4) + i, weight.rows - 1)) + k);
    }
    FourColumns terms;
    LoadFourColumns<kClamp>(weight, column, k, terms);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Set(d, x.row(i)[k + j]), terms[j], sums[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    if constexpr (kClamp) {
      StorePartial(d, sums[i], y.row(i) + column, y.columns - column);
    } else {
      hn::StoreU(sums[i], d, y.row(i) + column);
    }
  }
}

// y = x·Wᵀ for up to kRows rows: weights are transposed in registers and loaded once. Returns false if x has more rows,
// or a number of columns that is no multiple of 4.
template <int kRows = 8>
bool TryFewRows(const ConstMatrix& x, const ConstMatrix& weight, const Matrix& y) {
  if constexpr (kRows > 0) {
    if (x.rows != kRows) return TryFewRows<kRows - 1>(x, weight, y);
    if (x.columns % 4 != 0) return false;
    int64_t column = 0;
    for (; column + kLanes <= y.columns; column += kLanes) MultiplyFewRowsTile<kRows, false>(x, weight, y, column);
    if (column < y.columns) MultiplyFewRowsTile<kRows, true>(x, weight, y, column);
    return true;
  }
  return false;
}

// One block of terms and columns of B, in panels of up to kTileTerms terms, by A's rows. `from_c`: the chains begin at
// C.
template <ProductForm kForm>
void MultiplyTerms(const ConstMatrix& a, const float* panels, int64_t panel_stride, bool b_in_panels, bool from_c,
                   const Matrix& c, absl::FunctionRef<void(int64_t, int64_t)> finish) {
  constexpr bool kTermsFirst = kForm == ProductForm::kColumnsByColumns;
  const int64_t terms = kTermsFirst ? a.rows : a.columns;
  HWY_ALIGN float packed[kTermsFirst ? kChunkTiles * kChunkFloats : kTileRows * kRowStride];
  HWY_ALIGN float chains[kTermsFirst ? kTileRows * kBlockColumns : 1];
  for (int64_t row = 0; row < c.rows; row += kTileRows) {
    const int64_t rows = std::min<int64_t>(kTileRows, c.rows - row), tile = row % kChunkRows / kTileRows;
    if (kTermsFirst && tile == 0) PackTermsOfA(a, row, packed);
    for (int64_t k = 0; k < terms; k += kTileTerms) {
      Block block = {.a = packed,
                     .panels = panels + k * kTileColumns,
                     .panel_stride = panel_stride,
                     .terms = std::min(kTileTerms, terms - k),
                     .c = c.Rows(row, rows),
                     .next_step = a.stride,
                     .reads_panels_once = b_in_panels && c.rows < kTileRows};
      const bool last = k + block.terms == terms;
      if constexpr (kTermsFirst) {
        block.a += tile * kChunkFloats + k * kTermStride;
        block.add = last;
        if (k > 0) block.from = chains, block.from_stride = kBlockColumns;
        if (!last) block.c = Matrix(chains, rows, c.columns, kBlockColumns);
        block.next = row - tile * kTileRows + kChunkRows < c.rows ? a.row(k) + row + kChunkRows
                                                                  : a.row(k + kProductBlock) + tile * kTileRows;
      } else {
        PackRowsOfA(a.Rows(row, rows).Columns(k, block.terms), packed);
        if (from_c || k > 0) block.from = block.c.data, block.from_stride = block.c.stride;
        block.next = last ? a.row(row + kTileRows) : a.row(row) + k + kTileTerms;
        block.next_wrap = kLine - kLine * a.stride;
      }
      MultiplyBlock<kTermsFirst>(block);
    }
    finish(row, rows);
  }
}

}  // namespace

template <ProductForm kForm>
void MultiplyForm(const ProductArgs& p, const ProductPart& part, absl::FunctionRef<void(const ProductPart&)> finish) {
  constexpr bool kTermsFirst = kForm == ProductForm::kColumnsByColumns, kBRows = kForm == ProductForm::kRowsByRows;
  const Matrix c = part.Of(p.c);
  const ConstMatrix a = kTermsFirst ? p.a.Columns(part.row, part.rows) : p.a.Rows(part.row, part.rows);
  const ConstMatrix b = kBRows ? p.b.Rows(part.column, part.columns) : p.b.Columns(part.column, part.columns);
  if (kBRows && !p.add && !p.b_in_panels && TryFewRows(a, b, c)) return finish(part);

  HWY_ALIGN float copy[kProductBlock * kBlockColumns];
  const int64_t terms = kTermsFirst ? a.rows : a.columns;
  const int64_t most_columns =
      kTermsFirst ? kBlockColumns : kProductBlock / std::min(terms, kProductBlock) * kBlockColumns;
  for (int64_t column = 0; column < c.columns; column += most_columns) {
    const int64_t columns = std::min(most_columns, c.columns - column);
    for (int64_t k = 0; k < terms; k += kProductBlock) {
      const int64_t depth = std::min(kProductBlock, terms - k);
      const float* panels = copy;
      int64_t panel_stride = depth * kTileColumns;
      if (p.b_in_panels) {
        panels = b.row(column) + k * kTileColumns;
        panel_stride = terms * kTileColumns;
      } else if (kBRows) {
        PackRows(b.Rows(column, columns).Columns(k, depth), copy, panel_stride);
      } else {
        PackColumns(b.Rows(k, depth).Columns(column, columns), copy, panel_stride);
      }
      MultiplyTerms<kForm>(kTermsFirst ? a.Rows(k, depth) : a.Columns(k, depth), panels, panel_stride, p.b_in_panels,
                           p.add || k > 0, c.Columns(column, columns), [&](int64_t row, int64_t rows) {
                             if (k + depth < terms) return;
                             finish({part.row + row, rows, part.column + column, columns});
                           });
    }
  }
}

void PackAllPanels(const Matrix& b) {
  static_assert(kPackedRows % kTileColumns == 0);
  std::vector<float> panel(static_cast<size_t>(kTileColumns * b.columns));
  for (int64_t row = 0; row < b.rows; row += kTileColumns) {
    std::copy_n(b.row(row), panel.size(), panel.data());
    PackRows({panel.data(), kTileColumns, b.columns}, b.row(row), /*panel_stride=*/0);
  }
}

int64_t MultiplyVectors(int64_t rounds) {
  constexpr int kVectors = 12;
  const FloatTag d;
  const FloatVec factor = hn::Set(d, 0.5f), term = hn::Set(d, 1.0f);
  FloatVec sums[kVectors];
#pragma GCC unroll 16
  for (FloatVec& sum : sums) sum = term;
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (FloatVec& sum : sums) sum = hn::MulAdd(sum, factor, term);
  }
  for (int v = 1; v < kVectors; ++v) sums[0] = hn::Add(sums[0], sums[v]);
  [[maybe_unused]] volatile const float used = hn::GetLane(sums[0]);  // else nothing is computed
  return rounds * kVectors * kLanes * 2;
}

void MultiplyPart(const ProductArgs& p, const ProductPart& part, absl::FunctionRef<void(const ProductPart&)> finish) {
  switch (p.form) {
    case ProductForm::kRowsByRows:
      return MultiplyForm<ProductForm::kRowsByRows>(p, part, finish);
    case ProductForm::kRowsByColumns:
      return MultiplyForm<ProductForm::kRowsByColumns>(p, part, finish);
    case ProductForm::kColumnsByColumns:
      return MultiplyForm<ProductForm::kColumnsByColumns>(p, part, finish);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace hadal {
namespace {

HWY_EXPORT(MultiplyPart);
HWY_EXPORT(PackAllPanels);
HWY_EXPORT(MultiplyVectors);

constexpr int64_t kRowGrain = 8, kColumnGrain = 32;
constexpr int64_t kSmallProduct = 1 << 16;  // multiply-adds that do not repay a second thread

// How many parts of the rows and of the columns; their product is the number of threads.
struct Grid {
  int rows, columns;
};

// The grid with the least work of a thread. Copying an element of B costs about as much as kPackRows rows of
// multiply-adds, of A as kPackColumns columns.
Grid ChooseGrid(int64_t rows, int64_t columns, int threads) {
  constexpr int64_t kPackRows = 24, kPackColumns = 16;
  Grid best = {1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  const auto part = [](int64_t items, int64_t grain, int parts) {
    return ((items + grain - 1) / grain + parts - 1) / parts * grain;
  };
  for (int by_rows = 1; by_rows <= threads; ++by_rows) {
    if (threads % by_rows != 0) continue;
    const int by_columns = threads / by_rows;
    const int64_t work =
        (part(rows, kRowGrain, by_rows) + kPackRows) * (part(columns, kColumnGrain, by_columns) + kPackColumns);
    if (work < least) least = work, best = {by_rows, by_columns};
  }
  return best;
}

}  // namespace

void cpu::Product(const Stream& stream, const ProductArgs& args, absl::FunctionRef<void(const ProductPart&)> finish) {
  const auto multiply = HWY_DYNAMIC_DISPATCH(MultiplyPart);
  const int64_t rows = args.c.rows, columns = args.c.columns;
  const int64_t terms = args.form == ProductForm::kColumnsByColumns ? args.a.rows : args.a.columns;
  if (stream.threads() == 1 || rows * columns * terms < kSmallProduct)
    return multiply(args, {0, rows, 0, columns}, finish);
  const Grid grid = ChooseGrid(rows, columns, stream.threads());
  const auto begin = [](int64_t items, int64_t grain, int parts, int i) {
    return std::min(items, (items + grain - 1) / grain * i / parts * grain);
  };
  stream.Run([&](int thread) {
    const int i = thread / grid.columns, j = thread % grid.columns;
    const int64_t row = begin(rows, kRowGrain, grid.rows, i), column = begin(columns, kColumnGrain, grid.columns, j);
    const ProductPart part = {row, begin(rows, kRowGrain, grid.rows, i + 1) - row, column,
                              begin(columns, kColumnGrain, grid.columns, j + 1) - column};
    if (part.rows > 0 && part.columns > 0) multiply(args, part, finish);
  });
}

void cpu::PackPanels(const Matrix& b) { HWY_DYNAMIC_DISPATCH(PackAllPanels)(b); }

int64_t cpu::MultiplyInRegisters(int64_t rounds) { return HWY_DYNAMIC_DISPATCH(MultiplyVectors)(rounds); }

}  // namespace hadal

#endif  // HWY_ONCE
