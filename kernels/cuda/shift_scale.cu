#include "kernels/cuda/operations.h"

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
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) ForwardKernel(ShiftScaleForwardArgs args) {
  const auto [row, column, count] = ThisEight(args.x.rows, args.x.columns);
  if (count == 0) return;
  const float shift = Load(ViewOf(args.shift)), scale = ViewOf(args.scale) ? Load(ViewOf(args.scale)) : 1.0f;
  Eight values = LoadEight<kAligned>(ViewOf<X>(args.x).row(row) + column, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) values.v[c] = scale * (values.v[c] - shift);
  StoreEight<kAligned>(ViewOf<Y>(args.y).row(row) + column, values, count);
}

// Block x: rows [x · kShiftScaleRowBlock, …). partials[2x] = Σ dy, partials[2x + 1] = Σ dy·(x − b), of these rows.
template <typename X, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) BackwardKernel(ShiftScaleBackwardArgs args) {
  HADAL_SHARED(float, warps, 2 * kWarps);
  const float shift = Load(ViewOf(args.shift)), scale = ViewOf(args.scale) ? Load(ViewOf(args.scale)) : 1.0f;
  const int64_t first = BlockX() * kShiftScaleRowBlock, left = args.dy.rows - first;
  const int64_t rows = left < kShiftScaleRowBlock ? left : kShiftScaleRowBlock, eights = (args.dy.columns + 7) / 8;
  float sums[2] = {};
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, column = 8 * (i % eights);
    const int count = static_cast<int>(args.dy.columns - column < 8 ? args.dy.columns - column : 8);
    Eight gradient = LoadEight<kAligned>(ViewOf<Y>(args.dy).row(row) + column, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sums[0] += gradient.v[c];
    if (ViewOf(args.scale)) {
      const Eight x = LoadEight<kAligned>(ViewOf<X>(args.x).row(row) + column, count);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) sums[1] = MulAdd(gradient.v[c], x.v[c] - shift, sums[1]);
    }
    const DevicePointer<X> dx = ViewOf<X>(args.dx).row(row) + column;
    Eight before;
    if (args.accumulate) before = LoadEight<kAligned>(dx, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) gradient.v[c] = before.v[c] + scale * gradient.v[c];
    StoreEight<kAligned>(dx, gradient, count);
  }
  HADAL_UNROLL for (int k = 0; k < 2; ++k) {
    const float sum = SumOfBlock<float>(sums[k], Shared<float>(warps) + k * kWarps, kWarps);
    if (ThreadIndex() == 0) Store(ViewOf(args.partials) + 2 * BlockX() + k, sum);
  }
}

// One warp: lane t adds blocks t, t + 32, …
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kWarp) ScalarsKernel(ShiftScaleBackwardArgs args, int64_t blocks) {
  double sums[2] = {};
  for (int64_t block = ThreadIndex(); block < blocks; block += kWarp) {
    HADAL_UNROLL for (int k = 0; k < 2; ++k) sums[k] +=
        static_cast<double>(Load(ViewOf(args.partials) + 2 * block + k));
  }
  HADAL_UNROLL for (int k = 0; k < 2; ++k) sums[k] = SumOfWarp(sums[k]);
  if (ThreadIndex() != 0) return;
  const double scale = ViewOf(args.scale) ? static_cast<double>(Load(ViewOf(args.scale))) : 1.0;
  Store(ViewOf(args.d_shift), Load(ViewOf(args.d_shift)) - static_cast<float>(scale * sums[0]));
  if (ViewOf(args.scale)) Store(ViewOf(args.d_scale), Load(ViewOf(args.d_scale)) + static_cast<float>(sums[1]));
}

}  // namespace

void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs& args) {
  if (args.x.rows == 0) return;
  const bool aligned = InAlignedEights(args.x.columns, {args.x, args.y});
  const LaunchShape shape = ShapeOfEights(args.x.rows, args.x.columns);
  WithElements(args.x.storage, args.y.storage, [&]<typename X, typename Y>(X, Y) {
    Launch(stream, shape, aligned ? ForwardKernel<X, Y, true> : ForwardKernel<X, Y, false>, args);
  });
}

void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const bool aligned = InAlignedEights(args.dy.columns, {args.dy, args.x, args.dx});
  const int64_t blocks = BlocksOfRows(args.dy.rows);
  WithElements(args.dx.storage, args.dy.storage, [&]<typename X, typename Y>(X, Y) {
    Launch(stream, {.blocks_x = blocks, .threads = kThreads},
           aligned ? BackwardKernel<X, Y, true> : BackwardKernel<X, Y, false>, args);
  });
  Launch(stream, {.threads = kWarp}, ScalarsKernel, args, blocks);
}

}  // namespace hadal::cuda
