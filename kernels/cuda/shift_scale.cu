#include "kernels/cuda/shift_scale.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

int64_t BlocksOfRows(int64_t rows) { return (rows + kShiftScaleRowBlock - 1) / kShiftScaleRowBlock; }

// Eight columns per thread.
template <typename X, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ForwardKernel(ShiftScaleForwardArgs<X, Y> args) {
  const int64_t eights = (args.width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights);
  if (row >= args.rows) return;
  const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
  const float shift = Load(args.shift), scale = args.scale ? Load(args.scale) : 1.0f;
  Eight values = LoadEight<kAligned>(args.x.row(row) + column, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) values.v[c] = scale * (values.v[c] - shift);
  StoreEight<kAligned>(args.y.row(row) + column, values, count);
}

// Two sums over the block; thread 0 has the results.
HADAL_DEVICE void SumOfBlock(Shared<float> warps, float (&sums)[2]) {
  HADAL_UNROLL for (int k = 0; k < 2; ++k) {
    sums[k] = SumOfWarp(sums[k]);
    if (ThreadIndex() % kWarp == 0) warps[2 * (ThreadIndex() / kWarp) + k] = sums[k];
  }
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    HADAL_UNROLL for (int k = 0; k < 2; ++k) sums[k] += warps[2 * w + k];
  }
}

// Block x: rows [x · kShiftScaleRowBlock, …). partials[2x] = Σ dy, partials[2x + 1] = Σ dy·(x − b), of these rows.
template <typename X, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) BackwardKernel(ShiftScaleBackwardArgs<X, Y> args) {
  HADAL_SHARED(float, warps, 2 * kWarps);
  const float shift = Load(args.shift), scale = args.scale ? Load(args.scale) : 1.0f;
  const int64_t first = BlockX() * kShiftScaleRowBlock, left = args.rows - first;
  const int64_t rows = left < kShiftScaleRowBlock ? left : kShiftScaleRowBlock, eights = (args.width + 7) / 8;
  float sums[2] = {};
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, column = 8 * (i % eights);
    const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
    Eight gradient = LoadEight<kAligned>(args.dy.row(row) + column, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sums[0] += gradient.v[c];
    if (args.scale) {
      const Eight x = LoadEight<kAligned>(args.x.row(row) + column, count);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) sums[1] = MulAdd(gradient.v[c], x.v[c] - shift, sums[1]);
    }
    const DevicePointer<X> dx = args.dx.row(row) + column;
    Eight before;
    if (args.accumulate) before = LoadEight<kAligned>(dx, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) gradient.v[c] = before.v[c] + scale * gradient.v[c];
    StoreEight<kAligned>(dx, gradient, count);
  }
  SumOfBlock(warps, sums);
  if (ThreadIndex() != 0) return;
  HADAL_UNROLL for (int k = 0; k < 2; ++k) Store(args.partials + 2 * BlockX() + k, sums[k]);
}

// One warp: lane t adds blocks t, t + 32, …
template <typename X, typename Y>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kWarp) ScalarsKernel(ShiftScaleBackwardArgs<X, Y> args, int64_t blocks) {
  double sums[2] = {};
  for (int64_t block = ThreadIndex(); block < blocks; block += kWarp) {
    HADAL_UNROLL for (int k = 0; k < 2; ++k) sums[k] += static_cast<double>(Load(args.partials + 2 * block + k));
  }
  HADAL_UNROLL for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    HADAL_UNROLL for (int k = 0; k < 2; ++k) sums[k] += ShuffleXor(sums[k], mask);
  }
  if (ThreadIndex() != 0) return;
  const double scale = args.scale ? static_cast<double>(Load(args.scale)) : 1.0;
  Store(args.d_shift, Load(args.d_shift) - static_cast<float>(scale * sums[0]));
  if (args.scale) Store(args.d_scale, Load(args.d_scale) + static_cast<float>(sums[1]));
}

}  // namespace

template <typename X, typename Y>
void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs<X, Y>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.x && args.shift && args.y);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.y);
  const int64_t eights = args.rows * ((args.width + 7) / 8);
  Launch(stream, {.blocks_x = (eights + kThreads - 1) / kThreads, .threads = kThreads},
         aligned ? ForwardKernel<X, Y, true> : ForwardKernel<X, Y, false>, args);
}

template <typename X, typename Y>
void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs<X, Y>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.dy && args.shift && args.dx && args.d_shift && args.partials);
  HADAL_CHECK(!args.scale || (args.x && args.d_scale));
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.dy) && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.dx);
  const int64_t blocks = BlocksOfRows(args.rows);
  Launch(stream, {.blocks_x = blocks, .threads = kThreads},
         aligned ? BackwardKernel<X, Y, true> : BackwardKernel<X, Y, false>, args);
  Launch(stream, {.threads = kWarp}, ScalarsKernel<X, Y>, args, blocks);
}

template void ShiftScaleForward(StreamHandle, const ShiftScaleForwardArgs<float, float>&);
template void ShiftScaleForward(StreamHandle, const ShiftScaleForwardArgs<float, BFloat16>&);
template void ShiftScaleForward(StreamHandle, const ShiftScaleForwardArgs<BFloat16, BFloat16>&);
template void ShiftScaleBackward(StreamHandle, const ShiftScaleBackwardArgs<float, float>&);
template void ShiftScaleBackward(StreamHandle, const ShiftScaleBackwardArgs<float, BFloat16>&);
template void ShiftScaleBackward(StreamHandle, const ShiftScaleBackwardArgs<BFloat16, BFloat16>&);

}  // namespace hadal::cuda
