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
#include "kernels/cpu/attention_dropout-inl.h"
#include "kernels/cpu/attention_work.h"
#include "kernels/cpu/small_product-inl.h"
#include "kernels/cpu/tile_copy-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hadal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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
