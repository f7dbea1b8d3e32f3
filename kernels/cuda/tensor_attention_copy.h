// Copies of tiles (tensor_attention_tile.h) between device memory and shared memory.
//
// A thread copies kWidth / 16 units of each tile: one column of units, every kRowStep-th row. kAligned: 16-byte
// accesses; every row of the matrix must then be 16-byte aligned. Otherwise elements are accessed one by one.
#pragma once

#include <cstdint>

#include "kernels/cuda/rotary_columns.h"
#include "kernels/cuda/tensor_attention_tile.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {

// Which units of a tile a thread copies: `unit` of rows row + u · kRowStep, 0 ≤ u < kCount.
template <int kWidth>
struct ThreadUnits {
  static constexpr int kUnits = kWidth / 8, kCount = kTileUnits<kWidth> / kTensorThreads;
  static constexpr int kRowStep = kTensorThreads / kUnits;
  int row = ThreadIndex() / kUnits, unit = ThreadIndex() % kUnits;

  // Returns UnitPlace(row + u · kRowStep, unit). UnitPlace XORs the unit with some bits of the row. These bits are
  // the same for all u, unless kRowStep is 4: then one of them, of value 4, is flipped for odd u.
  HADAL_DEVICE int place(int u) const {
    return (UnitPlace<kWidth>(row, unit) ^ (kRowStep == 4 ? u % 2 * 4 : 0)) + u * kTensorThreads;
  }
};

// Reads rows of a matrix, kTensorRows at a time.
template <int kWidth, bool kAligned>
struct RowReader {
  using Own = ThreadUnits<kWidth>;
  DevicePointer<const BFloat16> source;  // the thread's first unit of the next tile
  int step;                              // elements between the thread's units
  // With rotary positions: the angles of that unit's row and columns. Null: the unit is not rotated.
  DevicePointer<const float> angles;

  // Reads from row `first` on, columns [column, column + kWidth).
  HADAL_DEVICE RowReader(const DeviceMatrix<const BFloat16>& from, int first, int column)
      : source(from.row(first + Own().row) + (column + 8 * Own().unit)),
        step(static_cast<int>(from.stride) * Own::kRowStep) {}
  // As above, and rotates the columns by the rotary positions: row `first` has position `position`.
  HADAL_DEVICE RowReader(const DeviceMatrix<const BFloat16>& from, int first, int column, const DeviceRotary& rotary,
                         int position)
      : RowReader(from, first, column) {
    if (rotary.half > 0) angles = rotary.angles.row(position + Own().row) + 8 * Own().unit % (kWidth / 2);
  }

  // Returns the thread's unit u of the next tile.
  HADAL_DEVICE Vector16 Unit(int u) const {
    const DevicePointer<const BFloat16> from = source + int64_t{u} * step;
    Vector16 values = UnitAt(from);
    if (!angles) return values;
    const bool is_high = Own().unit >= Own::kUnits / 2;
    const Vector16 others = UnitAt(from + (is_high ? -kWidth / 2 : kWidth / 2));
    const DevicePointer<const float> of_row = angles + u * (Own::kRowStep * kWidth);  // a row has kWidth angles
    HADAL_UNROLL for (int c = 0; c < 4; ++c) {
      float turned[2];
      HADAL_UNROLL for (int e = 0; e < 2; ++e) {
        const float x = FloatOf(e == 0 ? values.word[c] << 16 : values.word[c] & 0xFFFF0000u);
        const float other = FloatOf(e == 0 ? others.word[c] << 16 : others.word[c] & 0xFFFF0000u);
        const float cosine = Load(of_row + (2 * c + e)), sine = Load(of_row + (kWidth / 2 + 2 * c + e));
        turned[e] = is_high ? Turned(other, x, cosine, sine).high : Turned(x, other, cosine, sine).low;
      }
      values.word[c] = RoundPair(turned[0], turned[1]);
    }
    return values;
  }
  HADAL_DEVICE Vector16 UnitAt(DevicePointer<const BFloat16> from) const {
    if constexpr (kAligned) {
      return LoadVector(from);
    } else {
      Vector16 values;
      HADAL_UNROLL for (int c = 0; c < 4; ++c) {
        values.word[c] = Load(from + 2 * c).bits | static_cast<uint32_t>(Load(from + (2 * c + 1)).bits) << 16;
      }
      return values;
    }
  }
  HADAL_DEVICE void Advance() {
    source = source + int64_t{Own::kCount} * step;
    if (angles) angles = angles + Own::kCount * Own::kRowStep * kWidth;
  }
};

// Copies the next tile of readers[i] to tiles[i] in shared memory; rows [rows, kTensorRows) become 0. Every thread of
// the block must call it. It contains barriers: the previous contents of the tiles may be read until the call, the
// new ones after it. A thread loads kAhead units of each tile before it stores them, so that these loads overlap.
// put_more() may write other shared memory, with the same barriers.
template <int kTiles, int kWidth, bool kAligned, typename PutMore>
HADAL_DEVICE void LoadTiles(RowReader<kWidth, kAligned> (&readers)[kTiles], int rows,
                            const Shared<Vector16> (&tiles)[kTiles], const PutMore& put_more) {
  using Own = ThreadUnits<kWidth>;
  const Own own;
  constexpr int kAhead = !kAligned ? 1 : Own::kCount == 8 ? 1 : Own::kCount;
  HADAL_UNROLL_BY(kAligned ? Own::kCount : 1) for (int first = 0; first < Own::kCount; first += kAhead) {
    Vector16 values[kTiles][kAhead] = {};
    HADAL_UNROLL for (int i = 0; i < kTiles; ++i) {
      HADAL_UNROLL for (int u = 0; u < kAhead; ++u) {
        if (own.row + (first + u) * Own::kRowStep < rows) values[i][u] = readers[i].Unit(first + u);
      }
    }
    if (first == 0) Barrier();  // previous contents have been read
    HADAL_UNROLL for (int i = 0; i < kTiles; ++i) {
      HADAL_UNROLL for (int u = 0; u < kAhead; ++u) tiles[i][own.place(first + u)] = values[i][u];
    }
  }
  HADAL_UNROLL for (int i = 0; i < kTiles; ++i) readers[i].Advance();
  put_more();
  Barrier();
}
template <int kTiles, int kWidth, bool kAligned>
HADAL_DEVICE void LoadTiles(RowReader<kWidth, kAligned> (&readers)[kTiles], int rows,
                            const Shared<Vector16> (&tiles)[kTiles]) {
  LoadTiles(readers, rows, tiles, [] {});
}

// Copies the first `rows` rows of a tile to rows [first, first + rows), columns [column, column + kWidth) of `to`.
// Every thread of the block must call it, after a Barrier.
template <int kWidth, bool kAligned>
HADAL_DEVICE void StoreTile(Shared<Vector16> tile, const DeviceMatrix<BFloat16>& to, int first, int rows, int column) {
  using Own = ThreadUnits<kWidth>;
  const Own own;
  const DevicePointer<BFloat16> target = to.row(first + own.row) + (column + 8 * own.unit);
  const int64_t step = to.stride * Own::kRowStep;
  HADAL_UNROLL_BY(kAligned ? Own::kCount : 1) for (int u = 0; u < Own::kCount; ++u) {
    if (own.row + u * Own::kRowStep >= rows) break;
    const Vector16 values = tile[own.place(u)];
    if constexpr (kAligned) {
      StoreVector(target + u * step, values);
    } else {
      HADAL_UNROLL for (int c = 0; c < 4; ++c) {
        Store(target + (u * step + 2 * c), BFloat16{static_cast<uint16_t>(values.word[c])});
        Store(target + (u * step + 2 * c + 1), BFloat16{static_cast<uint16_t>(values.word[c] >> 16)});
      }
    }
  }
}

// Returns whether all rows of all matrices are 16-byte aligned, as kAligned requires. Aborts if a thread's step
// between rows would not fit in an int.
template <typename... Matrices>
bool AllRowsOn16Bytes(const Matrices&... matrices) {
  constexpr int64_t kMostStride = int64_t{1} << 26;
  HADAL_CHECK(((matrices.stride < kMostStride) && ...));
  return (RowsOn16Bytes(matrices) && ...);
}

}  // namespace hadal::cuda
