// Shared by the attention kernels for tensor cores: tiles of BFloat16 rows in shared memory, and products of a warp's
// rows with tiles. kWidth is the head's width: 32, 64 or 128. tensor_attention_copy.h copies tiles from and to device
// memory.
//
// A block's tile has queries, and the other side is the keys; for the gradients of keys and values it is the reverse.
// A block has two warps. A warp holds 16 rows of the block's tile and processes 32 rows of the other side at a time.
// Its 16 x 32 pairs are four C fragments: v[2h + e] of lane 4g + t in fragment j is the pair (row g + 8h, other 8j + 2t
// + e); h, e ∈ {0, 1}. Bit 4j + 2h + e of a lane's masks belongs to that pair.
// A tile is [kTensorRows, kWidth], in units of eight columns (16 bytes). Unit u of row r is stored where UnitPlace
// says, at u XOR some bits of r, so that the eight rows of one matrix load are in different banks of shared memory.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/fragment.h"
#include "kernels/cuda/rotary_columns.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

inline constexpr int kTensorRows = kAttentionTileRows;  // 32, per tile; also rows of the other side per iteration
inline constexpr int kTensorThreads = kTensorRows / 16 * kWarp;
inline constexpr int kPairFragments = kTensorRows / 8;

template <int kWidth>
inline constexpr int kTileUnits = kTensorRows* kWidth / 8;

// Returns the place of unit `unit` of row `row`. Kernels compute a lane's place once and derive the others by
// constants, which saves registers:
//   UnitPlace(r + 8, u) = UnitPlace(r, u) + kWidth    UnitPlace(r, u ^ v) = UnitPlace(r, u) ^ v
template <int kWidth>
HADAL_DEVICE int UnitPlace(int row, int unit) {
  constexpr int kUnits = kWidth / 8;
  return (row * kUnits + (kUnits >= 8 ? row & 7 : row >> 1 & 3)) ^ unit;
}

// A lane's place in its warp's fragments.
struct FragmentLane {
  int g = ThreadIndex() % kWarp / 4, t = ThreadIndex() % 4;
  int first_row = ThreadIndex() / kWarp * 16;  // of the warp, in the block's tile

  HADAL_DEVICE int row(int h) const { return first_row + g + 8 * h; }
  HADAL_DEVICE int other(int j, int e) const { return 8 * j + 2 * t + e; }
};

// The warp's 16 rows of a tile, sixteen columns per fragment: loaded from the tile each time (RowsInTile) or held in
// registers (HeldRows).
template <int kWidth>
struct RowsInTile {
  // Fragments of columns per iteration. With all eight at a width of 128, ptxas loads so early that registers spill.
  static constexpr int kAtATime = 4;
  Shared<Vector16> tile;

  HADAL_DEVICE FragmentA Columns(int k) const {
    const int lane = ThreadIndex() % kWarp;
    const int place = UnitPlace<kWidth>(ThreadIndex() / kWarp * 16 + lane % 16, lane / 16);
    const FourMatrices m = LoadMatrices(tile + (place ^ 2 * k));
    return {{m.word[0], m.word[1], m.word[2], m.word[3]}};
  }
};
template <int kWidth>
struct HeldRows {
  static constexpr int kAtATime = kWidth / 16;  // all: registers have no index at run time
  FragmentA k[kWidth / 16];

  HADAL_DEVICE explicit HeldRows(const RowsInTile<kWidth>& rows) {
    HADAL_UNROLL for (int i = 0; i < kWidth / 16; ++i) k[i] = rows.Columns(i);
  }
  HADAL_DEVICE FragmentA Columns(int i) const { return k[i]; }
};

// One number for each pair of the warp's 16 rows and 32 rows of the other side, such as their products.
struct PairFragments {
  FragmentC c[kPairFragments];
};

// Returns the dot products of the warp's rows (`own`) with the 32 rows of `other`. `Rows`: RowsInTile or HeldRows.
template <int kWidth, template <int> typename Rows>
HADAL_DEVICE PairFragments DotFragments(const Rows<kWidth>& own, Shared<Vector16> other) {
  const int lane = ThreadIndex() % kWarp;
  const int place = UnitPlace<kWidth>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  PairFragments products;
  HADAL_UNROLL_BY(Rows<kWidth>::kAtATime) for (int k = 0; k < kWidth / 16; ++k) {
    const FragmentA a = own.Columns(k);
    HADAL_UNROLL for (int j = 0; j < kPairFragments; j += 2) {
      const FourMatrices m = LoadMatrices(other + ((place ^ 2 * k) + j * kWidth));  // eight rows are kWidth units
      MultiplyAdd(products.c[j], a, {m.word[0], m.word[1]});
      MultiplyAdd(products.c[j + 1], a, {m.word[2], m.word[3]});
    }
  }
  return products;
}

// Sets to −infinity the scores of pairs whose query is more than `reach` positions behind the key. `place`: position of
// the block's first row in its sentence; `other`: position of the first of the 32 rows of the other side.
template <bool kRowsAreQueries>
HADAL_DEVICE void HideFarKeys(int32_t reach, int place, int other, PairFragments& scores) {
  if (reach == kWholeSentence) return;
  const FragmentLane lane;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int i = 0; i < 4; ++i) {
      const int behind = place + lane.row(i / 2) - other - lane.other(j, i % 2);
      if ((kRowsAreQueries ? behind : -behind) > reach) scores.c[j].v[i] = FloatOf(0xFF800000u);
    }
  }
}

// For each of the warp's rows a weighted sum of rows of the other side.
template <int kWidth>
struct RowSums {
  FragmentC c[kWidth / 8];
};

// Weights of rows 16k … 16k + 15 of the other side, rounded to BFloat16. A lane's elements of two neighbouring C
// fragments are its elements of an A fragment.
HADAL_DEVICE FragmentA RoundedWeights(const PairFragments& weights, int k) {
  const float(&low)[4] = weights.c[2 * k].v;
  const float(&high)[4] = weights.c[2 * k + 1].v;
  return {
      {RoundPair(low[0], low[1]), RoundPair(low[2], low[3]), RoundPair(high[0], high[1]), RoundPair(high[2], high[3])}};
}

// sums[r] += Σ_i weights[r, i] · row i of `other`, in columns [8 · first_unit, 8 · first_unit + kColumns) of `other`.
// The weights are rounded to BFloat16. REQUIRES: first_unit is a multiple of kColumns / 8.
template <int kWidth, int kColumns>
HADAL_DEVICE void AddWeightedFragments(const PairFragments& weights, Shared<Vector16> other, RowSums<kColumns>& sums,
                                       int first_unit = 0) {
  const int lane = ThreadIndex() % kWarp;
  const int place = UnitPlace<kWidth>(lane % 16, lane / 16) ^ first_unit;
  HADAL_UNROLL for (int k = 0; k < kTensorRows / 16; ++k) {
    const FragmentA a = RoundedWeights(weights, k);
    HADAL_UNROLL for (int n = 0; n < kColumns / 8; n += 2) {
      const FourMatrices m = LoadMatricesTransposed(other + ((place ^ n) + 2 * k * kWidth));
      MultiplyAdd(sums.c[n], a, {m.word[0], m.word[1]});
      MultiplyAdd(sums.c[n + 1], a, {m.word[2], m.word[3]});
    }
  }
}

// sums.v[2h] and sums.v[2h + 1] += Σ_i weights[row h of the lane, i], rounded as in AddWeightedFragments.
HADAL_DEVICE void AddRoundedWeights(const PairFragments& weights, FragmentC& sums) {
  constexpr uint32_t kOnes = 0x3F803F80;
  HADAL_UNROLL for (int k = 0; k < kTensorRows / 16; ++k) {
    MultiplyAdd(sums, RoundedWeights(weights, k), {kOnes, kOnes});
  }
}

// Turns `sums`, gradients of turned queries or keys, back (kernels/rotary.h). The block's tile has `rows` rows; its row
// 0 is at `position` in the sentence.
template <int kWidth>
HADAL_DEVICE void TurnBack(const DeviceRotary& rotary, int position, int rows, RowSums<kWidth>& sums) {
  if (rotary.half == 0) return;
  const FragmentLane at;
  HADAL_UNROLL for (int h = 0; h < 2; ++h) {
    if (at.row(h) >= rows) continue;
    const DevicePointer<const float> angles = rotary.angles.row(position + at.row(h));
    HADAL_UNROLL for (int n = 0; n < kWidth / 16; ++n) {
      HADAL_UNROLL for (int e = 0; e < 2; ++e) {
        float &low = sums.c[n].v[2 * h + e], &high = sums.c[n + kWidth / 16].v[2 * h + e];
        const int c = at.other(n, e);
        const TurnedPair turned = Turned(low, high, Load(angles + c), -Load(angles + (kWidth / 2 + c)));
        low = turned.low, high = turned.high;
      }
    }
  }
}

// Stores sums · factor[h] to the warp's rows of `tile`. REQUIRES: no thread still reads these rows.
template <int kWidth>
HADAL_DEVICE void PutSums(const RowSums<kWidth>& sums, const float (&factor)[2], Shared<Vector16> tile) {
  const FragmentLane at;
  const int place = UnitPlace<kWidth>(at.row(0), 0);
  HADAL_UNROLL for (int n = 0; n < kWidth / 8; ++n) {
    HADAL_UNROLL for (int h = 0; h < 2; ++h) {
      StoreWord(tile + ((place ^ n) + h * kWidth), at.t,
                RoundPair(sums.c[n].v[2 * h] * factor[h], sums.c[n].v[2 * h + 1] * factor[h]));
    }
  }
}

// Returns the mask of the pairs that dropout keeps. The warp's rows are queries from `query` on, the others are keys
// from key block `key_block` on. A lane draws for its two rows and one block of eight keys; then the four lanes of a
// row exchange draws. Each call loads the random position again: keeping it would cost registers.
HADAL_DEVICE uint32_t KeptOfQueries(const DeviceDropout& dropout, int query, int heads, int head, int key_block) {
  const FragmentLane at;
  const RandomPosition position = Load(dropout.position);
  uint32_t low = 0, high = 0;
  HADAL_UNROLL_BY(1) for (int row = at.g; row < 16; row += 8) {  // one draw at a time, to save registers
    low = high;
    high = KeptKeys(dropout, position, query + row, heads, head, key_block + at.t);
  }
  uint32_t kept = 0;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    const uint32_t of_block = ShuffleFrom(low | high << 8, 4 * at.g + j) >> (2 * at.t);
    kept |= ((of_block & 3) | (of_block >> 8 & 3) << 2) << (4 * j);
  }
  return kept;
}

// As KeptOfQueries, but the warp's rows are the keys of key blocks `key_block` and `key_block` + 1, and the others are
// queries from `query` on. A lane draws for one query and the warp's sixteen keys; then the warp exchanges draws.
HADAL_DEVICE uint32_t KeptOfKeys(const DeviceDropout& dropout, int query, int heads, int head, int key_block) {
  const FragmentLane at;
  const int lane = ThreadIndex() % kWarp;
  const RandomPosition position = Load(dropout.position);
  const uint32_t low = KeptKeys(dropout, position, query + lane, heads, head, key_block);
  const uint32_t high = KeptKeys(dropout, position, query + lane, heads, head, key_block + 1);
  uint32_t kept = 0;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    HADAL_UNROLL for (int e = 0; e < 2; ++e) {
      const uint32_t of_query = ShuffleFrom(low | high << 8, at.other(j, e)) >> at.g;
      kept |= ((of_query & 1) | (of_query >> 8 & 1) << 2) << (4 * j + e);
    }
  }
  return kept;
}

// A lane's sixteen (query, key) pairs in the backward kernels: `probability` is P; `d_weight` = d_output·V, the
// gradient of P after dropout; `kept` is the bit mask of the pairs that dropout keeps.
inline constexpr uint32_t kAllKept = 0xFFFF;
struct Pairs {
  PairFragments probability, d_weight;
  uint32_t kept = kAllKept;
};

// The gradient of P before dropout, for pair v[i] of fragment j: d_weight · scale if dropout keeps it, else 0.
HADAL_DEVICE float DProbability(const Pairs& pairs, int j, int i, const DeviceDropout& dropout) {
  return pairs.kept >> (4 * j + i) & 1 ? pairs.d_weight.c[j].v[i] * dropout.scale : 0.0f;
}

template <int kWidth>
HADAL_DEVICE float ScoreScale() {
  return 1.0f / SquareRoot(static_cast<float>(kWidth));
}

// A backward block's tiles in shared memory.
struct BackwardTiles {
  Shared<Vector16> queries, d_outputs, keys, values;
};

}  // namespace hadal::cuda
