#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// Eight columns of the sum per thread.
template <typename X, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) WeightedSumKernel(WeightedSumForwardArgs args) {
  const auto [row, column, count] = ThisEight(args.y.rows, args.y.columns);
  if (count == 0) return;
  Eight sum;
  for (int64_t k = 0; k < args.weights.size; ++k) {
    const float weight = Load(ViewOf(args.weights) + k);
    const Eight x = LoadEight<kAligned>(ViewOf<X>(args.x).row(k * args.y.rows + row) + column, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] = MulAdd(weight, x.v[c], sum.v[c]);
  }
  StoreEight<kAligned>(ViewOf<Y>(args.y).row(row) + column, sum, count);
}

// Block (x, k): rows [x · kWeightedSumRowBlock, …) of term k. partials[x·K + k] = Σ dy·x_k of these rows.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) TermGradientKernel(WeightedSumBackwardArgs args) {
  HADAL_SHARED(float, warps, kWarps);
  const int64_t k = BlockY(), first = BlockX() * kWeightedSumRowBlock, left = args.dy.rows - first;
  const int64_t rows = left < kWeightedSumRowBlock ? left : kWeightedSumRowBlock, eights = (args.dy.columns + 7) / 8;
  const float weight = Load(ViewOf(args.weights) + k);
  float sum = 0.0f;
  for (int64_t i = ThreadIndex(); i < rows * eights; i += kThreads) {
    const int64_t row = first + i / eights, row_of_term = k * args.dy.rows + row, column = 8 * (i % eights);
    const int count = static_cast<int>(args.dy.columns - column < 8 ? args.dy.columns - column : 8);
    const Eight dy = LoadEight<kAligned>(ViewOf<T>(args.dy).row(row) + column, count);
    const Eight x = LoadEight<kAligned>(ViewOf<T>(args.x).row(row_of_term) + column, count);
    const DevicePointer<float> to = ViewOf(args.dx).row(row_of_term) + column;
    Eight dx = LoadEight<kAligned>(to, count);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      dx.v[c] = MulAdd(weight, dy.v[c], dx.v[c]);
      sum = MulAdd(dy.v[c], x.v[c], sum);
    }
    StoreEight<kAligned>(to, dx, count);
  }
  sum = SumOfBlock<float>(sum, warps, kWarps);
  if (ThreadIndex() == 0) Store(ViewOf(args.partials) + BlockX() * args.weights.size + k, sum);
}

// One thread per term.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) WeightGradientKernel(WeightedSumBackwardArgs args, int64_t blocks) {
  const int64_t k = BlockX() * kThreads + ThreadIndex();
  if (k >= args.weights.size) return;
  double sum = 0.0;
  for (int64_t block = 0; block < blocks; ++block) {
    sum += static_cast<double>(Load(ViewOf(args.partials) + block * args.weights.size + k));
  }
  Store(ViewOf(args.d_weights) + k, Load(ViewOf(args.d_weights) + k) + static_cast<float>(sum));
}

}  // namespace

void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs& args) {
  if (args.y.rows == 0) return;
  const bool aligned = InAlignedEights(args.y.columns, {args.x, args.y});
  const LaunchShape shape = ShapeOfEights(args.y.rows, args.y.columns);
  WithElements(args.x.storage, args.y.storage, [&]<typename X, typename Y>(X, Y) {
    Launch(stream, shape, aligned ? WeightedSumKernel<X, Y, true> : WeightedSumKernel<X, Y, false>, args);
  });
}

void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const int64_t terms = args.weights.size;
  HADAL_CHECK_LE(terms, 65535);  // the grid's second dimension
  const bool aligned = InAlignedEights(args.dy.columns, {args.dy, args.x, args.dx});
  const int64_t blocks = (args.dy.rows + kWeightedSumRowBlock - 1) / kWeightedSumRowBlock;
  WithElement(args.x.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = blocks, .blocks_y = terms, .threads = kThreads},
           aligned ? TermGradientKernel<T, true> : TermGradientKernel<T, false>, args);
  });
  Launch(stream, {.blocks_x = (terms + kThreads - 1) / kThreads, .threads = kThreads}, WeightGradientKernel, args,
         blocks);
}

}  // namespace hadal::cuda
