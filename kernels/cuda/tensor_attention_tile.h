// Shared by the attention kernels for tensor cores: tiles of BFloat16 rows in shared memory, and products of a warp's
// rows with tiles.
//
// A block has two warps. A warp holds 16 rows of the block's tile and processes 32 rows of the other side at a time.
// Its 16 x 32 pairs are four C fragments: v[2h + e] of lane 4g + t in fragment j is the pair (row g + 8h, other 8j + 2t
// + e); h, e ∈ {0, 1}. Bit 4j + 2h + e of a lane's masks belongs to that pair.
// A tile is [kTensorRows, kWidth], in units of eight columns (16 bytes). Unit u of row r is stored at the place of unit
// u ^ r, using the bits of r that choose a bank, so that the eight rows of one matrix load are in different banks.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_tile.h"
#include "kernels/cuda/fragment.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

inline constexpr int kTensorRows = kAttentionTileRows;  // per tile; also rows of the other side per iteration
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

// Loads eight contiguous elements one by one.
HADAL_DEVICE Vector16 LoadUnitSingly(DevicePointer<const BFloat16> source) {
  Vector16 values;
  HADAL_UNROLL for (int c = 0; c < 4; ++c) {
    values.word[c] = Load(source + 2 * c).bits | static_cast<uint32_t>(Load(source + (2 * c + 1)).bits) << 16;
  }
  return values;
}

// Copies rows [first, first + kTensorRows), columns [column, column + kWidth) of `from`; rows from `end` on read as 0.
// Every thread of the block must call it and then Barrier. A thread loads kUnitsAhead units before it stores the first
// one, so that it waits for memory once.
template <int kWidth>
HADAL_DEVICE void LoadUnits(Shared<Vector16> tile, const DeviceMatrix<const BFloat16>& from, int64_t first, int64_t end,
                            int64_t column) {
  constexpr int kUnits = kWidth / 8, kUnitsAhead = kTileUnits<kWidth> / kTensorThreads < 4 ? 2 : 4;
  static_assert(kTileUnits<kWidth> % (kUnitsAhead * kTensorThreads) == 0);
  const bool aligned = RowsOn16Bytes(from) && column % 8 == 0;
  for (int i = ThreadIndex(); i < kTileUnits<kWidth>; i += kUnitsAhead * kTensorThreads) {
    Vector16 values[kUnitsAhead] = {};
    const auto source = [&](int ahead) {
      const int at = i + ahead * kTensorThreads;
      return from.row(first + at / kUnits) + (column + 8 * (at % kUnits));
    };
    const auto exists = [&](int ahead) { return first + (i + ahead * kTensorThreads) / kUnits < end; };
    if (aligned) {
      HADAL_UNROLL for (int u = 0; u < kUnitsAhead; ++u) {
        if (exists(u)) values[u] = LoadVector(source(u));
      }
    } else {
      for (int u = 0; u < kUnitsAhead; ++u) {
        if (exists(u)) values[u] = LoadUnitSingly(source(u));
      }
    }
    HADAL_UNROLL for (int u = 0; u < kUnitsAhead; ++u) {
      const int at = i + u * kTensorThreads;
      tile[UnitPlace<kWidth>(at / kUnits, at % kUnits)] = values[u];
    }
  }
}

// The warp's 16 rows of a tile, sixteen columns per fragment: loaded from the tile each time (RowsInTile) or held in
// registers (HeldRows).
template <int kWidth>
struct RowsInTile {
  // Columns per iteration. With all eight at a width of 128 ptxas loads so far ahead that it spills.
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
  static constexpr int kAtATime = kWidth / 16;  // all, because registers cannot be indexed at run time
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

// Products of row r of the warp and row i of `other`. `Rows`: RowsInTile or HeldRows.
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

// A sum of rows of the other side for each of the warp's rows.
template <int kWidth>
struct RowSums {
  FragmentC c[kWidth / 8];
};

// sums[r] += Σ_i weights[r, i] · row i of `other`; the weights are rounded to BFloat16.
template <int kWidth>
HADAL_DEVICE void AddWeightedFragments(const PairFragments& weights, Shared<Vector16> other, RowSums<kWidth>& sums) {
  const int lane = ThreadIndex() % kWarp;
  const int place = UnitPlace<kWidth>(lane % 16, lane / 16);
  HADAL_UNROLL for (int k = 0; k < kTensorRows / 16; ++k) {
    // A lane's elements of two neighbouring C fragments are its elements of an A fragment.
    const float(&low)[4] = weights.c[2 * k].v;
    const float(&high)[4] = weights.c[2 * k + 1].v;
    const FragmentA a = {{RoundPair(low[0], low[1]), RoundPair(low[2], low[3]), RoundPair(high[0], high[1]),
                          RoundPair(high[2], high[3])}};
    HADAL_UNROLL for (int n = 0; n < kWidth / 8; n += 2) {
      const FourMatrices m = LoadMatricesTransposed(other + ((place ^ n) + 2 * k * kWidth));
      MultiplyAdd(sums.c[n], a, {m.word[0], m.word[1]});
      MultiplyAdd(sums.c[n + 1], a, {m.word[2], m.word[3]});
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

// Copies `rows` rows of a tile to rows [first, first + rows), columns [column, column + kWidth) of `to`. Every thread
// of the block must call it, after a Barrier.
template <int kWidth>
HADAL_DEVICE void StoreUnits(Shared<Vector16> tile, const DeviceMatrix<BFloat16>& to, int64_t first, int rows,
                             int64_t column) {
  constexpr int kUnits = kWidth / 8;
  const bool aligned = RowsOn16Bytes(to) && column % 8 == 0;
  for (int i = ThreadIndex(); i < rows * kUnits; i += ThreadsInBlock()) {
    const int row = i / kUnits, unit = i % kUnits;
    const Vector16 values = tile[UnitPlace<kWidth>(row, unit)];
    const DevicePointer<BFloat16> target = to.row(first + row) + (column + 8 * unit);
    if (aligned) {
      StoreVector(target, values);
      continue;
    }
    HADAL_UNROLL for (int c = 0; c < 4; ++c) {
      Store(target + 2 * c, BFloat16{static_cast<uint16_t>(values.word[c])});
      Store(target + (2 * c + 1), BFloat16{static_cast<uint16_t>(values.word[c] >> 16)});
    }
  }
}

// Returns the mask of the pairs that dropout keeps. The warp's rows are queries from `query` on, the others are keys
// from key block `key_block` on. A lane draws for its two rows and one block of keys; then the four lanes of a row
// exchange draws.
HADAL_DEVICE uint32_t KeptOfQueries(const DeviceDropout& dropout, const RandomPosition& position, int64_t query,
                                    int heads, int64_t head, int64_t key_block) {
  const FragmentLane at;
  const uint32_t low = KeptKeys(dropout, position, query + at.g, heads, head, key_block + at.t);
  const uint32_t high = KeptKeys(dropout, position, query + at.g + 8, heads, head, key_block + at.t);
  uint32_t kept = 0;
  HADAL_UNROLL for (int j = 0; j < kPairFragments; ++j) {
    const uint32_t of_block = ShuffleFrom(low | high << 8, 4 * at.g + j) >> (2 * at.t);
    kept |= ((of_block & 3) | (of_block >> 8 & 3) << 2) << (4 * j);
  }
  return kept;
}

// As KeptOfQueries, with the warp's rows as keys of blocks `key_block` and `key_block` + 1, and the others as queries
// from `query` on. A lane draws for one query and the warp's sixteen keys; then the warp exchanges draws.
HADAL_DEVICE uint32_t KeptOfKeys(const DeviceDropout& dropout, const RandomPosition& position, int64_t query, int heads,
                                 int64_t head, int64_t key_block) {
  const FragmentLane at;
  const int lane = ThreadIndex() % kWarp;
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

}  // namespace hadal::cuda
