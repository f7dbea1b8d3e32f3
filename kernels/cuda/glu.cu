#include "kernels/cuda/glu.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

int64_t BlocksOf(int64_t rows, int64_t width) { return (rows * ((width + 7) / 8) + kThreads - 1) / kThreads; }

HADAL_DEVICE float Sigmoid(float t) { return 1.0f / (1.0f + Exp(-t)); }

// Eight columns of y per thread.
template <typename Z, typename Y, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) GluForwardKernel(GluForwardArgs<Z, Y> args) {
  const int64_t eights = (args.width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights);
  if (row >= args.rows) return;
  const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
  Eight value = LoadEight<kAligned>(args.z.row(row) + column, count);
  const Eight gate = LoadEight<kAligned>(args.z.row(row) + (args.width + column), count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) value.v[c] *= Sigmoid(gate.v[c]);
  StoreEight<kAligned>(args.y.row(row) + column, value, count);
}

template <typename Z, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) GluBackwardKernel(GluBackwardArgs<Z> args) {
  const int64_t eights = (args.width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights);
  if (row >= args.rows) return;
  const int count = static_cast<int>(args.width - column < 8 ? args.width - column : 8);
  const DevicePointer<Z> values = args.z.row(row) + column, gates = args.z.row(row) + (args.width + column);
  const Eight dy = LoadEight<kAligned>(args.dy.row(row) + column, count);
  Eight value = LoadEight<kAligned>(values, count), gate = LoadEight<kAligned>(gates, count);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    const float open = Sigmoid(gate.v[c]);
    gate.v[c] = dy.v[c] * value.v[c] * open * (1.0f - open);
    value.v[c] = dy.v[c] * open;
  }
  StoreEight<kAligned>(values, value, count);
  StoreEight<kAligned>(gates, gate, count);
}

}  // namespace

template <typename Z, typename Y>
void GluForward(StreamHandle stream, const GluForwardArgs<Z, Y>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.z && args.y);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.z) && RowsOn16Bytes(args.y);
  Launch(stream, {.blocks_x = BlocksOf(args.rows, args.width), .threads = kThreads},
         aligned ? GluForwardKernel<Z, Y, true> : GluForwardKernel<Z, Y, false>, args);
}

template <typename Z>
void GluBackward(StreamHandle stream, const GluBackwardArgs<Z>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.dy && args.z);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.dy) && RowsOn16Bytes(args.z);
  Launch(stream, {.blocks_x = BlocksOf(args.rows, args.width), .threads = kThreads},
         aligned ? GluBackwardKernel<Z, true> : GluBackwardKernel<Z, false>, args);
}

template void GluForward(StreamHandle, const GluForwardArgs<float, float>&);
template void GluForward(StreamHandle, const GluForwardArgs<BFloat16, BFloat16>&);
template void GluForward(StreamHandle, const GluForwardArgs<BFloat16, float>&);
template void GluBackward(StreamHandle, const GluBackwardArgs<float>&);
template void GluBackward(StreamHandle, const GluBackwardArgs<BFloat16>&);

}  // namespace hadal::cuda
