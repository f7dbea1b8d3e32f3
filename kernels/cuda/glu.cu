#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

HADAL_DEVICE float Sigmoid(float t) { return 1.0f / (1.0f + Exp(-t)); }

// Eight columns of y per thread.
template <typename Z, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) GluForwardKernel(GluForwardArgs args) {
  const auto [row, column, count] = ThisEight(args.y.rows, args.y.columns);
  if (count == 0) return;
  Eight value = LoadEight<kAligned>(ViewOf<Z>(args.value).row(row) + column, count);
  const Eight gate = LoadEight<kAligned>(ViewOf<Z>(args.gate).row(row) + column, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) value.v[c] *= Sigmoid(gate.v[c]);
  StoreEight<kAligned>(ViewOf<Y>(args.y).row(row) + column, value, count);
}

template <typename Z, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) GluBackwardKernel(GluBackwardArgs args) {
  const auto [row, column, count] = ThisEight(args.dy.rows, args.dy.columns);
  if (count == 0) return;
  const Eight dy = LoadEight<kAligned>(ViewOf<Y>(args.dy).row(row) + column, count);
  Eight value = LoadEight<kAligned>(ViewOf<Z>(args.value).row(row) + column, count);
  Eight gate = LoadEight<kAligned>(ViewOf<Z>(args.gate).row(row) + column, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    const float open = Sigmoid(gate.v[c]);
    gate.v[c] = dy.v[c] * value.v[c] * open * (1.0f - open);
    value.v[c] = dy.v[c] * open;
  }
  StoreEight<kAligned>(ViewOf<Z>(args.d_value).row(row) + column, value, count);
  StoreEight<kAligned>(ViewOf<Z>(args.d_gate).row(row) + column, gate, count);
}

}  // namespace

void GluForward(StreamHandle stream, const GluForwardArgs& args) {
  if (args.y.rows == 0) return;
  const bool aligned = InAlignedEights(args.y.columns, {args.value, args.gate, args.y});
  const LaunchShape shape = ShapeOfEights(args.y.rows, args.y.columns);
  WithElements(args.y.storage, args.value.storage, [&]<typename Y, typename Z>(Y, Z) {
    Launch(stream, shape, aligned ? GluForwardKernel<Z, Y, true> : GluForwardKernel<Z, Y, false>, args);
  });
}

void GluBackward(StreamHandle stream, const GluBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const bool aligned = InAlignedEights(args.dy.columns, {args.dy, args.value, args.gate, args.d_value, args.d_gate});
  const LaunchShape shape = ShapeOfEights(args.dy.rows, args.dy.columns);
  WithElements(args.dy.storage, args.value.storage, [&]<typename Y, typename Z>(Y, Z) {
    Launch(stream, shape, aligned ? GluBackwardKernel<Z, Y, true> : GluBackwardKernel<Z, Y, false>, args);
  });
}

}  // namespace hadal::cuda
