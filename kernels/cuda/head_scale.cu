#include "kernels/cuda/head_scale.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// An element a thread.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadScaleKernel(HeadScaleArgs<T> args) {
  const int64_t width = args.heads * args.head_width, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / width, column = i % width;
  if (row >= args.rows) return;
  const float gain = Load(args.gain + column / args.head_width);
  Store(args.y.row(row) + column, FromFloat<T>(gain * ToFloat(Load(args.x.row(row) + column))));
}

// Block x: head x.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadScaleGainKernel(HeadScaleGainArgs<T> args) {
  HADAL_SHARED(float, warps, kWarps);
  const int64_t first = BlockX() * args.head_width, elements = args.rows * args.head_width;
  float sum = 0.0f;
  for (int64_t i = ThreadIndex(); i < elements; i += kThreads) {
    const int64_t row = i / args.head_width, column = first + i % args.head_width;
    sum = MulAdd(ToFloat(Load(args.dy.row(row) + column)), ToFloat(Load(args.x.row(row) + column)), sum);
  }
  sum = SumOfWarp(sum);
  if (ThreadIndex() % kWarp == 0) warps[ThreadIndex() / kWarp] = sum;
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < kWarps; ++w) sum += warps[w];
  Store(args.d_gain + BlockX(), Load(args.d_gain + BlockX()) + sum);
}

}  // namespace

template <typename T>
void HeadScale(StreamHandle stream, const HeadScaleArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.x && args.gain && args.y);
  HADAL_CHECK(args.heads >= 1 && args.head_width >= 1);
  const int64_t elements = args.rows * args.heads * args.head_width;
  Launch(stream, {.blocks_x = (elements + kThreads - 1) / kThreads, .threads = kThreads}, HeadScaleKernel<T>, args);
}

template <typename T>
void HeadScaleGain(StreamHandle stream, const HeadScaleGainArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.dy && args.x && args.d_gain);
  HADAL_CHECK(args.heads >= 1 && args.head_width >= 1);
  Launch(stream, {.blocks_x = args.heads, .threads = kThreads}, HeadScaleGainKernel<T>, args);
}

template void HeadScale(StreamHandle, const HeadScaleArgs<float>&);
template void HeadScale(StreamHandle, const HeadScaleArgs<BFloat16>&);
template void HeadScaleGain(StreamHandle, const HeadScaleGainArgs<float>&);
template void HeadScaleGain(StreamHandle, const HeadScaleGainArgs<BFloat16>&);

}  // namespace hadal::cuda
