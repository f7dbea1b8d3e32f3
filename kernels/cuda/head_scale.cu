#include "kernels/cuda/head_scale.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Returns the number of eights of columns of a head; the last one is shorter if D is not a multiple of eight.
HADAL_DEVICE int64_t EightsOf(int64_t head_width) { return (head_width + 7) / 8; }
HADAL_DEVICE int CountAt(int64_t column, int64_t head_width) {
  return static_cast<int>(head_width - column < 8 ? head_width - column : 8);
}

// One thread has eight columns of a head.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadScaleKernel(HeadScaleForwardArgs<T> args) {
  const int64_t eights = EightsOf(args.head_width), i = BlockX() * kThreads + ThreadIndex();
  const int64_t head_of_row = i / eights, row = head_of_row / args.heads, head = head_of_row % args.heads;
  if (row >= args.rows) return;
  const int64_t column = 8 * (i % eights), at = head * args.head_width + column;
  const int count = CountAt(column, args.head_width);
  const float gain = Load(args.gain + head);
  Eight value = LoadEight<kAligned>(args.x.row(row) + at, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) value.v[c] *= gain;
  StoreEight<kAligned>(args.y.row(row) + at, value, count);
}

// Block (x, h): rows [x · kHeadScaleRowBlock, …) of head h. partials[x·H + h] = Σ dy·x of these rows.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadScaleGradientKernel(HeadScaleBackwardArgs<T> args) {
  HADAL_SHARED(float, warps, kWarps);
  const int64_t head = BlockY(), first = BlockX() * kHeadScaleRowBlock, left = args.rows - first;
  const int64_t rows = left < kHeadScaleRowBlock ? left : kHeadScaleRowBlock, eights = EightsOf(args.head_width);
  const float gain = Load(args.gain + head);
  float sum = 0.0f;
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, column = 8 * (i % eights), at = head * args.head_width + column;
    const int count = CountAt(column, args.head_width);
    Eight dy = LoadEight<kAligned>(args.dy.row(row) + at, count);
    const Eight x = LoadEight<kAligned>(args.x.row(row) + at, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      sum = MulAdd(dy.v[c], x.v[c], sum);
      dy.v[c] *= gain;
    }
    StoreEight<kAligned>(args.dx.row(row) + at, dy, count);
  }
  sum = SumOfWarp(sum);
  if (ThreadIndex() % kWarp == 0) warps[ThreadIndex() / kWarp] = sum;
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < kWarps; ++w) sum += warps[w];
  Store(args.partials + BlockX() * args.heads + head, sum);
}

// Block x: head x, one warp.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kWarp) HeadScaleGainKernel(HeadScaleBackwardArgs<T> args, int64_t blocks) {
  const int64_t head = BlockX();
  float sum = 0.0f;
  for (int64_t block = ThreadIndex(); block < blocks; block += kWarp) {
    sum += Load(args.partials + block * args.heads + head);
  }
  sum = SumOfWarp(sum);
  if (ThreadIndex() == 0) Store(args.d_gain + head, Load(args.d_gain + head) + sum);
}

}  // namespace

template <typename T>
void HeadScaleForward(StreamHandle stream, const HeadScaleForwardArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.x && args.gain && args.y);
  HADAL_CHECK(args.heads >= 1 && args.head_width >= 1);
  const bool aligned = args.head_width % 8 == 0 && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.y);
  const int64_t eights = args.rows * args.heads * ((args.head_width + 7) / 8);
  Launch(stream, {.blocks_x = (eights + kThreads - 1) / kThreads, .threads = kThreads},
         aligned ? HeadScaleKernel<T, true> : HeadScaleKernel<T, false>, args);
}

template <typename T>
void HeadScaleBackward(StreamHandle stream, const HeadScaleBackwardArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.dy && args.x && args.gain && args.dx && args.d_gain && args.partials);
  HADAL_CHECK(args.heads >= 1 && args.head_width >= 1);
  HADAL_CHECK_LE(args.heads, 65535);  // the grid's second dimension
  const bool aligned =
      args.head_width % 8 == 0 && RowsOn16Bytes(args.dy) && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.dx);
  const int64_t blocks = (args.rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock;
  Launch(stream, {.blocks_x = blocks, .blocks_y = args.heads, .threads = kThreads},
         aligned ? HeadScaleGradientKernel<T, true> : HeadScaleGradientKernel<T, false>, args);
  Launch(stream, {.blocks_x = args.heads, .threads = kWarp}, HeadScaleGainKernel<T>, args, blocks);
}

template void HeadScaleForward(StreamHandle, const HeadScaleForwardArgs<float>&);
template void HeadScaleForward(StreamHandle, const HeadScaleForwardArgs<BFloat16>&);
template void HeadScaleBackward(StreamHandle, const HeadScaleBackwardArgs<float>&);
template void HeadScaleBackward(StreamHandle, const HeadScaleBackwardArgs<BFloat16>&);

}  // namespace hadal::cuda
