#include "kernels/cuda/linear_epilogue.h"

#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

// A thread's eight columns of one row.
struct EightPlace {
  int64_t row, column;
  int count;  // of them that exist; 0: none
};
HADAL_DEVICE EightPlace ThisEight(int64_t rows, int64_t width) {
  const int64_t eights = (width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  EightPlace place = {i / eights, 8 * (i % eights), 0};
  const int64_t left = width - place.column;
  if (place.row < rows) place.count = left < 8 ? static_cast<int>(left) : 8;
  return place;
}
int64_t BlocksOfEights(int64_t rows, int64_t width) { return (rows * ((width + 7) / 8) + kThreads - 1) / kThreads; }

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) DropoutRowsKernel(DropoutRowsArgs<T> args) {
  const EightPlace place = ThisEight(args.rows, args.width);
  if (place.count == 0) return;
  const RandomPosition position = Load(args.dropout.position);
  const DevicePointer<T> y = args.y.row(place.row) + place.column;
  Eight values = LoadEight<kAligned>(y, place.count);
  ApplyDropout<kAligned>(args.dropout, position, place.row * args.width + place.column, values);
  StoreEight<kAligned>(y, values, place.count);
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ReluMaskKernel(ReluMaskArgs<T> args) {
  const EightPlace place = ThisEight(args.rows, args.width);
  if (place.count == 0) return;
  const Eight y = LoadEight<kAligned>(args.relu_output.row(place.row) + place.column, place.count);
  const DevicePointer<T> dx = args.dx.row(place.row) + place.column;
  Eight values = LoadEight<kAligned>(dx, place.count);
  HADAL_UNROLL for (int i = 0; i < 8; ++i) values.v[i] = y.v[i] > 0.0f ? values.v[i] * args.mask_scale : 0.0f;
  StoreEight<kAligned>(dx, values, place.count);
}

// Block x: columns [32·x, 32·x + 32). Warp w adds run w.
template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kColumnRuns* kWarp) ColumnSumsKernel(ColumnSumsArgs<T> args) {
  HADAL_SHARED(float, runs, kColumnRuns* kWarp);
  const int64_t column = BlockX() * kWarp + ThreadIndex() % kWarp;
  const int run = ThreadIndex() / kWarp;
  const int64_t length = (args.rows + kColumnRuns - 1) / kColumnRuns;
  const int64_t end = (run + 1) * length < args.rows ? (run + 1) * length : args.rows;
  const bool mine = column < args.width;
  float total = 0.0f;
  for (int64_t row = run * length; mine && row < end; ++row) total += ToFloat(Load(args.x.row(row) + column));
  runs[ThreadIndex()] = total;
  Barrier();
  if (run != 0 || !mine) return;
  for (int r = 1; r < kColumnRuns; ++r) total += runs[r * kWarp + ThreadIndex()];
  Store(args.sums + column, Load(args.sums + column) + total);
}

}  // namespace

template <typename T>
void DropoutRows(StreamHandle stream, const DropoutRowsArgs<T>& args) {
  if (args.rows == 0 || !args.dropout.active()) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.y && args.dropout.position);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.y);
  Launch(stream, {.blocks_x = BlocksOfEights(args.rows, args.width), .threads = kThreads},
         aligned ? DropoutRowsKernel<T, true> : DropoutRowsKernel<T, false>, args);
}

template <typename T>
void ReluMask(StreamHandle stream, const ReluMaskArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.relu_output && args.dx);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.relu_output) && RowsOn16Bytes(args.dx);
  Launch(stream, {.blocks_x = BlocksOfEights(args.rows, args.width), .threads = kThreads},
         aligned ? ReluMaskKernel<T, true> : ReluMaskKernel<T, false>, args);
}

template <typename T>
void ColumnSums(StreamHandle stream, const ColumnSumsArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.x && args.sums);
  Launch(stream, {.blocks_x = (args.width + kWarp - 1) / kWarp, .threads = kColumnRuns * kWarp}, ColumnSumsKernel<T>,
         args);
}

template void DropoutRows(StreamHandle, const DropoutRowsArgs<float>&);
template void DropoutRows(StreamHandle, const DropoutRowsArgs<BFloat16>&);
template void ReluMask(StreamHandle, const ReluMaskArgs<float>&);
template void ReluMask(StreamHandle, const ReluMaskArgs<BFloat16>&);
template void ColumnSums(StreamHandle, const ColumnSumsArgs<float>&);
template void ColumnSums(StreamHandle, const ColumnSumsArgs<BFloat16>&);

}  // namespace hadal::cuda
