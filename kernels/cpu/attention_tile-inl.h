// Tiles of attention on the CPU, shared by forward and backward: up to 32 queries of one (sentence, head) pair, and all
// keys of the pair that one of them sees. Keys are counted from the tile's first one.
//
// All matrices of keys by queries are transposed: row j is a key, columns are the tile's queries, stride
// kAttentionTile. A softmax thus runs down columns, one vector of queries at a time. Sums over keys are plain chains in
// ascending order, any number of keys needs no masks, and padding (queries up to a whole vector) does not mix with
// results.
//
// Causal tiles: the queries i ≥ j − place see key j. Products are split into strips of kCausalStrip keys or
// queries, and skip strips wholly above the diagonal. Hidden probabilities in the strips on the diagonal, and outside a
// window, are exactly 0.
// A Highway "-inl" header: see dropout-inl.h.

#if defined(HADAL_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HADAL_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef HADAL_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define HADAL_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/dropout-inl.h"
#include "kernels/cpu/tile_copy-inl.h"
#include "runtime/random.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

enum class SmallProductA {
  kRowMajor,    // A[i, k] = a[i · a_stride + k]
  kTransposed,  // A[i, k] = a[k · a_stride + i]
};

// A product of small matrices in the L1 and L2 caches, of which attention and its gradient have six:
// C[rows, columns] (=, or += with kAdd)  A[rows, inner] · B[inner, columns]. product.h copies its operands, which does
// not repay in a head's product of width 16.
// Method: blocks of kBlockRows x 2 vectors of C stay in registers; an element of A is broadcast, a row of B is
// contiguous.
// Numerics: every element of C is one chain of fused multiply-adds (without FMA: product, then sum) in ascending order
// of `inner`, starting from 0 or from C. The size of blocks, the vector width, and splitting `inner` over several calls
// do not change any bit. REQUIRES: C overlaps neither A nor B.
struct SmallProduct {
  const float* a;
  int64_t a_stride;
  const float* b;  // B[k, j] = b[k · b_stride + j]
  int64_t b_stride;
  float* c;  // C[i, j] = c[i · c_stride + j]
  int64_t c_stride;
  int64_t rows, inner;
  int64_t columns;  // REQUIRES: a multiple of the vector's lanes
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4  // 16 vector registers
inline constexpr int kBlockRows = 6;
#else
inline constexpr int kBlockRows = 8;
#endif

// One block of C, held in registers.
template <SmallProductA kA, bool kAdd, int kRows, int kVectors>
HWY_INLINE void MultiplyBlock(const SmallProduct& p, int64_t row, int64_t column) {
  const hn::ScalableTag<float> d;
  using Vec = hn::Vec<decltype(d)>;
  const int64_t lanes = hn::Lanes(d);
  constexpr bool kTransposed = kA == SmallProductA::kTransposed;
  const float* HWY_RESTRICT a = p.a + (kTransposed ? row : row * p.a_stride);
  const float* HWY_RESTRICT b = p.b + column;
  float* HWY_RESTRICT c = p.c + row * p.c_stride + column;
  const int64_t row_step = kTransposed ? 1 : p.a_stride;
  const int64_t inner_step = kTransposed ? p.a_stride : 1;

  Vec sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[i][v] = kAdd ? hn::LoadU(d, c + i * p.c_stride + v * lanes) : hn::Zero(d);
    }
  }
  for (int64_t k = 0; k < p.inner; ++k) {
    Vec b_row[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b_row[v] = hn::LoadU(d, b + v * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const Vec a_element = hn::Set(d, a[i * row_step]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(a_element, b_row[v], sums[i][v]);
    }
    a += inner_step;
    b += p.b_stride;
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, c + i * p.c_stride + v * lanes);
  }
}

// The last rows, fewer than a block. The recursion selects the template for the run-time value `rows`.
template <SmallProductA kA, bool kAdd, int kRows, int kVectors>
HWY_INLINE void MultiplyLastRows(const SmallProduct& p, int64_t row, int64_t column, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) return MultiplyBlock<kA, kAdd, kRows, kVectors>(p, row, column);
    MultiplyLastRows<kA, kAdd, kRows - 1, kVectors>(p, row, column, rows);
  }
}

template <SmallProductA kA, bool kAdd, int kVectors>
HWY_INLINE void MultiplyColumns(const SmallProduct& p, int64_t column) {
  constexpr int kTallRows = kBlockRows * 2 / kVectors;  // blocks one vector wide have twice the rows
  int64_t row = 0;
  for (; row + kTallRows <= p.rows; row += kTallRows) MultiplyBlock<kA, kAdd, kTallRows, kVectors>(p, row, column);
  if (kTallRows > kBlockRows && row + kBlockRows <= p.rows) {
    MultiplyBlock<kA, kAdd, kBlockRows, kVectors>(p, row, column);
    row += kBlockRows;
  }
  MultiplyLastRows<kA, kAdd, kBlockRows - 1, kVectors>(p, row, column, p.rows - row);
}

template <SmallProductA kA, bool kAdd>
HWY_NOINLINE void MultiplySmall(const SmallProduct& p) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  int64_t column = 0;
  for (; column + 2 * lanes <= p.columns; column += 2 * lanes) MultiplyColumns<kA, kAdd, 2>(p, column);
  if (column < p.columns) MultiplyColumns<kA, kAdd, 1>(p, column);
}

inline constexpr int64_t kKeysPerBlock = 8;

// Dropout factors in the layout of the probabilities: out[j, lane] = factor of (first_row + lane, head, key
// 8·key_block + j), 0 ≤ j < 8. One Philox block has the eight draws of a (query row, head, key block). With one query
// row per lane, its words are the rows of `out` and need no transposition. Same bits as AttentionDropoutFactor
// (tests/support/attention_dropout.h). `out` holds 8 vectors.  REQUIRES: dropout.active().
HWY_INLINE void FillQueryDropoutFactors(const Dropout& dropout, uint64_t first_row, uint32_t heads, uint32_t head,
                                        uint32_t key_block, float* HWY_RESTRICT out) {
  const PhiloxTag d64;
  const hn::Repartition<uint32_t, PhiloxTag> d32;
  const hn::Repartition<int32_t, PhiloxTag> di;
  const hn::Repartition<float, PhiloxTag> df;
  const PhiloxCounter base = dropout.counter.At(0, key_block);
  const auto words_of = [&](uint64_t row) HWY_ATTR {
    const PhiloxVec rows = hn::Add(hn::Set(d64, row), hn::Iota(d64, 0));
    const auto block = hn::MulEven(hn::BitCast(d32, rows), hn::Set(d32, heads));
    const PhiloxBlocks counter = {hn::Add(block, hn::Set(d64, uint64_t{head})), hn::Set(d64, uint64_t{base[1]}),
                                  hn::Set(d64, uint64_t{base[2]}), hn::Set(d64, uint64_t{base[3]})};
    return PhiloxRounds(dropout.counter.seed, counter);
  };
  const PhiloxBlocks low = words_of(first_row);
  const PhiloxBlocks high = words_of(first_row + hn::Lanes(d64));

  const auto threshold = hn::Set(di, static_cast<int32_t>(dropout.threshold));
  const auto scale = hn::Set(df, dropout.scale());
  const int64_t lanes = hn::Lanes(df);
  const auto store = [&](PhiloxVec low_word, PhiloxVec high_word, int64_t word) HWY_ATTR {
    const auto bits = hn::ConcatEven(d32, hn::BitCast(d32, high_word), hn::BitCast(d32, low_word));
    const auto even = hn::BitCast(di, hn::And(bits, hn::Set(d32, uint32_t{0xFFFF})));
    const auto odd = hn::BitCast(di, hn::ShiftRight<16>(bits));
    const auto factors = [&](auto draw) HWY_ATTR {
      return hn::IfThenZeroElse(hn::RebindMask(df, hn::Lt(draw, threshold)), scale);
    };
    hn::StoreU(factors(even), df, out + 2 * word * lanes);
    hn::StoreU(factors(odd), df, out + (2 * word + 1) * lanes);
  };
  store(low.word0, high.word0, 0);
  store(low.word1, high.word1, 1);
  store(low.word2, high.word2, 2);
  store(low.word3, high.word3, 3);
}

// Scores are in units of log 2, so that probabilities are powers of two: the scale of Q includes log2(e).
inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLog2 = 0.6931471805599453;

struct AttentionTile {
  int64_t first_query;  // position in the sentence
  int64_t queries;      // 1 .. kAttentionTile
  int64_t reach;        // of the window
  bool causal;
  int64_t first_key;  // position in the sentence, a multiple of kKeysPerBlock; 0 without a window
  int64_t place;      // of the first query, counted from the first key
  int64_t keys;       // up to the last one that at least one of the queries sees

  AttentionTile(const cpu::AttentionPair& pair, int64_t first, const AttentionShape& shape)
      : first_query(first),
        queries(std::min(cpu::kAttentionTile, pair.queries - first)),
        reach(shape.reach),
        causal(shape.causal),
        first_key(std::max<int64_t>(0, first - reach) / kKeysPerBlock * kKeysPerBlock),
        place(first - first_key) {
    keys = std::min(pair.keys, first_query + queries + (causal ? 0 : reach)) - first_key;
  }
  // The first query that may see key j.
  int64_t FirstQueryOf(int64_t j) const { return causal ? std::max<int64_t>(0, j - place) : 0; }
  // Keys up to the last one that the queries before `end` see.
  int64_t KeysBefore(int64_t end) const { return causal ? std::min(keys, place + end) : keys; }
  int64_t Strip(int64_t whole) const { return causal ? cpu::kCausalStrip : whole; }
};

// out[j, i] = Σ_d rows[j, d] · columns[d, i]: scores from K and Qᵀ, gradients of the probabilities from V and dOᵀ.
HWY_INLINE void MultiplyKeysByQueries(const AttentionTile& tile, const ConstMatrix& rows, const float* columns,
                                      float* out) {
  const int64_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const int64_t strip = tile.Strip(tile.keys);
  for (int64_t j = 0; j < tile.keys; j += strip) {
    const int64_t first = tile.FirstQueryOf(j) / lanes * lanes;
    MultiplySmall<SmallProductA::kRowMajor, false>({.a = rows.row(j),
                                                    .a_stride = rows.stride,
                                                    .b = columns + first,
                                                    .b_stride = cpu::kAttentionTile,
                                                    .c = out + j * cpu::kAttentionTile + first,
                                                    .c_stride = cpu::kAttentionTile,
                                                    .rows = std::min(strip, tile.keys - j),
                                                    .inner = rows.columns,
                                                    .columns = RoundUpToLanes(tile.queries) - first});
  }
}

// out[i, d] = Σ_j weights[j, i] · rows[j, d]: the output from P and V, dQ from dS and K. `width`: columns of rows and
// out.
HWY_INLINE void SumOverKeys(const AttentionTile& tile, const float* weights, const float* rows, int64_t width,
                            float* out) {
  const int64_t strip = tile.Strip(tile.queries);
  for (int64_t i = 0; i < tile.queries; i += strip) {
    const int64_t count = std::min(strip, tile.queries - i);
    MultiplySmall<SmallProductA::kTransposed, false>({.a = weights + i,
                                                      .a_stride = cpu::kAttentionTile,
                                                      .b = rows,
                                                      .b_stride = width,
                                                      .c = out + i * width,
                                                      .c_stride = width,
                                                      .rows = count,
                                                      .inner = tile.KeysBefore(i + count),
                                                      .columns = width});
  }
}

// out[j, d] += Σ_i weights[j, i] · rows[i, d]: dK from dS and Q, dV from P and dO.
HWY_INLINE void AddSumOverQueries(const AttentionTile& tile, const float* weights, const float* rows, int64_t width,
                                  float* out) {
  const int64_t strip = tile.Strip(tile.keys);
  for (int64_t j = 0; j < tile.keys; j += strip) {
    const int64_t first = tile.FirstQueryOf(j);
    MultiplySmall<SmallProductA::kRowMajor, true>({.a = weights + j * cpu::kAttentionTile + first,
                                                   .a_stride = cpu::kAttentionTile,
                                                   .b = rows + first * width,
                                                   .b_stride = width,
                                                   .c = out + j * width,
                                                   .c_stride = width,
                                                   .rows = std::min(strip, tile.keys - j),
                                                   .inner = tile.queries - first,
                                                   .columns = width});
  }
}

// One vector of the tile's queries, starting at `column`, and the keys it sees.
struct QueryVector {
  using Tag = hn::ScalableTag<float>;
  using Vec = hn::Vec<Tag>;

  int64_t column;
  int64_t all_from, all_to;  // all lanes see keys [all_from, all_to)
  int64_t end;               // some lanes or none see the other keys of [0, end); products read no later key
  int64_t first_block;       // key 0's number in the sentence, / kKeysPerBlock
  Vec first_seen, last_seen;

  QueryVector(const AttentionTile& tile, int64_t first_column)
      : column(first_column), first_block(tile.first_key / kKeysPerBlock) {
    const int64_t last = column + static_cast<int64_t>(hn::Lanes(Tag())), behind = tile.causal ? 0 : tile.reach;
    const int64_t strips = (last + cpu::kCausalStrip - 1) / cpu::kCausalStrip;
    all_to = std::min(tile.keys, tile.place + column + 1 + behind);
    all_from = std::clamp<int64_t>(tile.place + last - 1 - tile.reach, 0, all_to);
    end = tile.KeysBefore(strips * cpu::kCausalStrip);
    const Vec places = hn::Iota(Tag(), static_cast<float>(tile.place + column));
    first_seen = hn::Sub(places, hn::Set(Tag(), static_cast<float>(tile.reach)));
    last_seen = hn::Add(places, hn::Set(Tag(), static_cast<float>(behind)));
  }
  // Lanes that see key j.
  HWY_INLINE hn::Mask<Tag> Sees(int64_t j) const {
    const Vec key = hn::Set(Tag(), static_cast<float>(j));
    return hn::And(hn::Ge(last_seen, key), hn::Le(first_seen, key));
  }
};

// Calls body(j, factor, masked) for the keys [0, end) of a vector of queries, in ascending order. `factor` points to
// the dropout factors of key j, one query per lane; null without dropout. `masked`: not all lanes see the key.
template <typename Body>
HWY_INLINE void ForKeys(const QueryVector& vector, const Dropout& dropout, uint64_t first_row, uint32_t heads,
                        uint32_t head, Body&& body) {
  const QueryVector::Tag d;
  if (!dropout.active()) {
    for (int64_t j = 0; j < vector.all_from; ++j) body(j, nullptr, true);
    for (int64_t j = vector.all_from; j < vector.all_to; ++j) body(j, nullptr, false);
    for (int64_t j = vector.all_to; j < vector.end; ++j) body(j, nullptr, true);
    return;
  }
  HWY_ALIGN float factors[kKeysPerBlock * HWY_MAX_BYTES / sizeof(float)];
  for (int64_t block = 0; block * kKeysPerBlock < vector.end; ++block) {
    FillQueryDropoutFactors(dropout, first_row, heads, head, static_cast<uint32_t>(vector.first_block + block),
                            factors);
    const int64_t block_end = std::min(vector.end, (block + 1) * kKeysPerBlock);
    const float* factor = factors;
    for (int64_t j = block * kKeysPerBlock; j < block_end; ++j, factor += hn::Lanes(d)) {
      body(j, factor, j < vector.all_from || j >= vector.all_to);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace hadal
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
