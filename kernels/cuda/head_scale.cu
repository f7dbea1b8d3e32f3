#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// One thread has eight columns of a head.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) HeadScaleKernel(HeadScaleForwardArgs args, int64_t head_width) {
  const auto [head_of_row, column, count] = ThisEight(args.x.rows * args.gain.size, head_width);
  if (count == 0) return;
  const int64_t row = head_of_row / args.gain.size, head = head_of_row % args.gain.size,
                at = head * head_width + column;
  const float gain = Load(ViewOf(args.gain) + head);
  Eight value = LoadEight<kAligned>(ViewOf<T>(args.x).row(row) + at, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) value.v[c] *= gain;
  StoreEight<kAligned>(ViewOf<T>(args.y).row(row) + at, value, count);
}

// Block (x, h): rows [x · kHeadScaleRowBlock, …) of head h. partials[x·H + h] = Σ dy·x of these rows.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads)
    HeadScaleGradientKernel(HeadScaleBackwardArgs args, int64_t head_width) {
  HADAL_SHARED(float, warps, kWarps);
  const int64_t head = BlockY(), first = BlockX() * kHeadScaleRowBlock, left = args.dy.rows - first;
  const int64_t rows = left < kHeadScaleRowBlock ? left : kHeadScaleRowBlock, eights = (head_width + 7) / 8;
  const float gain = Load(ViewOf(args.gain) + head);
  float sum = 0.0f;
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, column = 8 * (i % eights), at = head * head_width + column;
    const int count = static_cast<int>(head_width - column < 8 ? head_width - column : 8);
    Eight dy = LoadEight<kAligned>(ViewOf<T>(args.dy).row(row) + at, count);
    const Eight x = LoadEight<kAligned>(ViewOf<T>(args.x).row(row) + at, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      sum = MulAdd(dy.v[c], x.v[c], sum);
      dy.v[c] *= gain;
    }
    StoreEight<kAligned>(ViewOf<T>(args.dx).row(row) + at, dy, count);
  }
  sum = SumOfBlock<float>(sum, warps, kWarps);
  if (ThreadIndex() == 0) Store(ViewOf(args.partials) + BlockX() * args.gain.size + head, sum);
}

// Block x: head x, one warp.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kWarp) HeadScaleGainKernel(HeadScaleBackwardArgs args, int64_t blocks) {
  const int64_t head = BlockX();
  float sum = 0.0f;
  for (int64_t block = ThreadIndex(); block < blocks; block += kWarp) {
    sum += Load(ViewOf(args.partials) + block * args.gain.size + head);
  }
  sum = SumOfWarp(sum);
  if (ThreadIndex() == 0) Store(ViewOf(args.d_gain) + head, Load(ViewOf(args.d_gain) + head) + sum);
}

}  // namespace

void HeadScaleForward(StreamHandle stream, const HeadScaleForwardArgs& args) {
  if (args.x.rows == 0) return;
  const int64_t heads = args.gain.size, head_width = args.x.columns / heads;
  const bool aligned = InAlignedEights(head_width, {args.x, args.y});
  WithElement(args.x.storage, [&]<typename T>(T) {
    Launch(stream, ShapeOfEights(args.x.rows * heads, head_width),
           aligned ? HeadScaleKernel<T, true> : HeadScaleKernel<T, false>, args, head_width);
  });
}

void HeadScaleBackward(StreamHandle stream, const HeadScaleBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const int64_t heads = args.gain.size, head_width = args.dy.columns / heads;
  HADAL_CHECK_LE(heads, 65535);  // the grid's second dimension
  const bool aligned = InAlignedEights(head_width, {args.dy, args.x, args.dx});
  const int64_t blocks = (args.dy.rows + kHeadScaleRowBlock - 1) / kHeadScaleRowBlock;
  WithElement(args.dy.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = blocks, .blocks_y = heads, .threads = kThreads},
           aligned ? HeadScaleGradientKernel<T, true> : HeadScaleGradientKernel<T, false>, args, head_width);
  });
  Launch(stream, {.blocks_x = heads, .threads = kWarp}, HeadScaleGainKernel, args, blocks);
}

}  // namespace hadal::cuda
