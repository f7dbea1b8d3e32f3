#include "kernels/cuda/unfold.h"

#include <algorithm>

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTaps = static_cast<int>(kConvolutionTaps);
constexpr int64_t kColumns = kThreads;  // of x, of one block

int64_t BlocksOfColumns(int64_t width) { return (width + kColumns - 1) / kColumns; }

// Block (x, y): row x of u from kColumns columns of x. They pass through shared memory, so that neighbouring threads
// load neighbouring columns of x and store neighbouring columns of u.
template <typename X, typename U, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) UnfoldKernel(UnfoldArgs args) {
  HADAL_SHARED(float, tile, kTaps* kColumns);
  const int64_t row = BlockX(), first = BlockY() * kColumns, left = args.x.columns - first;
  const int columns = static_cast<int>(left < kColumns ? left : kColumns), column = ThreadIndex();
  const RowTaps taps = Load(ViewOf(args.device_taps.taps) + (args.first + row));
  HADAL_UNROLL for (int k = 0; k < kTaps; ++k) {
    float value = 0.0f;
    if (column < columns && k >= taps.begin && k < taps.end) {
      value = ToFloat(Load(ViewOf<X>(args.x).row(taps.first + k) + (first + column)));
    }
    tile[kTaps * column + k] = value;
  }
  Barrier();
  const int at = 8 * ThreadIndex(), end = kTaps * columns;
  if (at >= end) return;
  StoreEight<kAligned>(ViewOf<U>(args.u).row(row) + (kTaps * first + at), LoadEightShared(tile + at),
                       end - at < 8 ? end - at : 8);
}

// Block (x, y): kColumns columns of the two rows of dx at taps 2 and 3 of row first − 1 + x of all rows of du. Its taps
// 4 and 0, 1 are the neighbours', where these exist.
template <typename U>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) FoldKernel(FoldArgs args) {
  const int64_t row = args.first - 1 + BlockX(), column = BlockY() * kColumns + ThreadIndex();
  if (row < 0 || row >= args.device_taps.rows || column >= args.dx.columns) return;
  const RowTaps taps = Load(ViewOf(args.device_taps.taps) + row);
  if (taps.end == 0) return;  // a padding row
  const int64_t last = args.first + args.du.rows;
  const bool before = taps.begin == 0 && row - 1 >= args.first, here = row >= args.first && row < last,
             behind = taps.end == kTaps && row + 1 < last;
  const auto term = [&](int64_t r, int k) {
    return ToFloat(Load(ViewOf<U>(args.du).row(r - args.first) + (kTaps * column + k)));
  };
  const DevicePointer<float> even = ViewOf(args.dx).row(taps.first + 2) + column;
  float sum = Load(even);
  if (before) sum += term(row - 1, 4);
  if (here) sum += term(row, 2);
  if (behind) sum += term(row + 1, 0);
  Store(even, sum);
  if (taps.end < 4) return;  // the sentence ends with the even row
  const DevicePointer<float> odd = ViewOf(args.dx).row(taps.first + 3) + column;
  sum = Load(odd);
  if (here) sum += term(row, 3);
  if (behind) sum += term(row + 1, 1);
  Store(odd, sum);
}

}  // namespace

std::vector<RowTaps> TapsOfRows(const std::vector<int32_t>& x_offsets, const std::vector<int32_t>& u_offsets) {
  std::vector<RowTaps> rows;
  for (size_t n = 0; n + 1 < u_offsets.size(); ++n) {
    for (int32_t j = 0; j < u_offsets[n + 1] - u_offsets[n]; ++j) {
      const int32_t first = x_offsets[n] + 2 * j - kTaps / 2;
      rows.push_back({first, std::max(0, x_offsets[n] - first), std::min(kTaps, x_offsets[n + 1] - first)});
    }
  }
  return rows;
}

void Unfold(StreamHandle stream, const UnfoldArgs& args) {
  if (args.u.rows == 0) return;
  const int64_t blocks_y = BlocksOfColumns(args.x.columns);
  HADAL_CHECK_LE(blocks_y, 65535);  // the grid's second dimension
  const bool aligned = InAlignedEights(args.x.columns, {args.u});
  const auto launch = [&]<typename X, typename U>(X, U) {
    Launch(stream, {.blocks_x = args.u.rows, .blocks_y = blocks_y, .threads = kThreads},
           aligned ? UnfoldKernel<X, U, true> : UnfoldKernel<X, U, false>, args);
  };
  if (args.x.storage == Storage::kBFloat16) return launch(BFloat16(), BFloat16());
  WithElement(args.u.storage, [&]<typename U>(U) { launch(float(), U()); });
}

void Fold(StreamHandle stream, const FoldArgs& args) {
  if (args.du.rows == 0) return;
  HADAL_CHECK_LE(args.first + args.du.rows, args.device_taps.rows);
  HADAL_CHECK_LE(BlocksOfColumns(args.dx.columns), 65535);
  WithElement(args.du.storage, [&]<typename U>(U) {
    Launch(stream, {.blocks_x = args.du.rows + 2, .blocks_y = BlocksOfColumns(args.dx.columns), .threads = kThreads},
           FoldKernel<U>, args);
  });
}

}  // namespace hadal::cuda
