#include "kernels/cuda/weighted_sum.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Eight columns of the sum per thread.
template <typename X, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) WeightedSumKernel(WeightedSumForwardArgs<X, Y> args) {
  const int64_t eights = (args.width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights);
  if (row >= args.rows) return;
  const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
  Eight sum;
  for (int64_t k = 0; k < args.terms; ++k) {
    const float weight = Load(args.weights + k);
    const Eight x = LoadEight<kAligned>(args.x.row(k * args.rows + row) + column, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] = MulAdd(weight, x.v[c], sum.v[c]);
  }
  StoreEight<kAligned>(args.y.row(row) + column, sum, count);
}

// Block (x, k): rows [x · kWeightedSumRowBlock, …) of term k. partials[x·K + k] = Σ dy·x_k of these rows.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) TermGradientKernel(WeightedSumBackwardArgs<T> args) {
  HADAL_SHARED(float, warps, kWarps);
  const int64_t k = BlockY(), first = BlockX() * kWeightedSumRowBlock, left = args.rows - first;
  const int64_t rows = left < kWeightedSumRowBlock ? left : kWeightedSumRowBlock, eights = (args.width + 7) / 8;
  const float weight = Load(args.weights + k);
  float sum = 0.0f;
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, row_of_term = k * args.rows + row, column = 8 * (i % eights);
    const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
    const Eight dy = LoadEight<kAligned>(args.dy.row(row) + column, count);
    const Eight x = LoadEight<kAligned>(args.x.row(row_of_term) + column, count);
    const DevicePointer<float> to = args.dx.row(row_of_term) + column;
    Eight dx = LoadEight<kAligned>(to, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      dx.v[c] = MulAdd(weight, dy.v[c], dx.v[c]);
      sum = MulAdd(dy.v[c], x.v[c], sum);
    }
    StoreEight<kAligned>(to, dx, count);
  }
  sum = SumOfWarp(sum);
  if (ThreadIndex() % kWarp == 0) warps[ThreadIndex() / kWarp] = sum;
  Barrier();
  if (ThreadIndex() != 0) return;
  for (int w = 1; w < kWarps; ++w) sum += warps[w];
  Store(args.partials + BlockX() * args.terms + k, sum);
}

// One thread per term.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) WeightGradientKernel(WeightedSumBackwardArgs<T> args, int64_t blocks) {
  const int64_t k = BlockX() * kThreads + ThreadIndex();
  if (k >= args.terms) return;
  double sum = 0.0;
  for (int64_t block = 0; block < blocks; ++block) {
    sum += static_cast<double>(Load(args.partials + block * args.terms + k));
  }
  Store(args.d_weights + k, Load(args.d_weights + k) + static_cast<float>(sum));
}

}  // namespace

template <typename X, typename Y>
void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs<X, Y>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.width >= 1 && args.terms >= 1);
  HADAL_CHECK(args.x && args.weights && args.y);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.y);
  const int64_t eights = args.rows * ((args.width + 7) / 8);
  Launch(stream, {.blocks_x = (eights + kThreads - 1) / kThreads, .threads = kThreads},
         aligned ? WeightedSumKernel<X, Y, true> : WeightedSumKernel<X, Y, false>, args);
}

template <typename T>
void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.width >= 1 && args.terms >= 1);
  HADAL_CHECK_LE(args.terms, 65535);  // the grid's second dimension
  HADAL_CHECK(args.dy && args.x && args.weights && args.dx && args.d_weights && args.partials);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.dy) && RowsOn16Bytes(args.x) && RowsOn16Bytes(args.dx);
  const int64_t blocks = (args.rows + kWeightedSumRowBlock - 1) / kWeightedSumRowBlock;
  Launch(stream, {.blocks_x = blocks, .blocks_y = args.terms, .threads = kThreads},
         aligned ? TermGradientKernel<T, true> : TermGradientKernel<T, false>, args);
  Launch(stream, {.blocks_x = (args.terms + kThreads - 1) / kThreads, .threads = kThreads}, WeightGradientKernel<T>,
         args, blocks);
}

template void WeightedSumForward(StreamHandle, const WeightedSumForwardArgs<float, float>&);
template void WeightedSumForward(StreamHandle, const WeightedSumForwardArgs<float, BFloat16>&);
template void WeightedSumForward(StreamHandle, const WeightedSumForwardArgs<BFloat16, BFloat16>&);
template void WeightedSumBackward(StreamHandle, const WeightedSumBackwardArgs<float>&);
template void WeightedSumBackward(StreamHandle, const WeightedSumBackwardArgs<BFloat16>&);

}  // namespace hadal::cuda
