#include "kernels/cuda/linear_epilogue.h"

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/dropout_draws.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) BiasRowsKernel(BiasRowsArgs<T> args) {
  const EightColumns eight = ThisEight(args.rows, args.width);
  if (eight.count == 0) return;
  const DevicePointer<T> y = args.y.row(eight.row) + eight.column;
  Eight values = LoadEight<kAligned>(y, eight.count);
  if (args.bias) {
    const Eight bias = LoadEight<kAligned>(args.bias + eight.column, eight.count);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) values.v[i] += bias.v[i];
  }
  if (args.relu) {
    HADAL_UNROLL for (int i = 0; i < 8; ++i) values.v[i] = values.v[i] < 0.0f ? 0.0f : values.v[i];
  }
  StoreEight<kAligned>(y, values, eight.count);
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) DropoutRowsKernel(DropoutRowsArgs<T> args) {
  const EightColumns eight = ThisEight(args.rows, args.width);
  if (eight.count == 0) return;
  const RandomPosition position = Load(args.dropout.position);
  const DevicePointer<T> y = args.y.row(eight.row) + eight.column;
  Eight values = LoadEight<kAligned>(y, eight.count);
  ApplyDropout<kAligned>(args.dropout, position, eight.row * args.width + eight.column, values);
  StoreEight<kAligned>(y, values, eight.count);
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kEightThreads) ReluMaskKernel(ReluMaskArgs<T> args) {
  const EightColumns eight = ThisEight(args.rows, args.width);
  if (eight.count == 0) return;
  const Eight y = LoadEight<kAligned>(args.relu_output.row(eight.row) + eight.column, eight.count);
  const DevicePointer<T> dx = args.dx.row(eight.row) + eight.column;
  Eight values = LoadEight<kAligned>(dx, eight.count);
  HADAL_UNROLL for (int i = 0; i < 8; ++i) values.v[i] = y.v[i] > 0.0f ? values.v[i] * args.mask_scale : 0.0f;
  StoreEight<kAligned>(dx, values, eight.count);
}

constexpr int kColumnWarps = kThreads / kWarp;
constexpr int kColumnsOfBlock = 8 * kWarp;
constexpr int kRowsAhead = 4;  // rows that a warp loads before it adds them

// Block (x, y): columns [256·x, 256·x + 256) of row block y, eight per lane.
struct ColumnLane {
  int64_t row, end;  // the warp's rows are row, row + kColumnWarps, … before end
  int64_t column;
  int count;  // existing columns
};
HADAL_DEVICE ColumnLane ThisColumnLane(int64_t rows, int64_t width, int64_t row_block, int64_t block) {
  const int64_t first = block * row_block, end = first + row_block;
  ColumnLane at = {first + ThreadIndex() / kWarp, end < rows ? end : rows};
  at.column = BlockX() * kColumnsOfBlock + 8 * (ThreadIndex() % kWarp);
  const int64_t left = width - at.column;
  at.count = left >= 8 ? 8 : left > 0 ? static_cast<int>(left) : 0;
  return at;
}

// Adds the warps' sums in ascending order, and stores the block's. Every thread of the block must call it.
HADAL_DEVICE void PutColumnSums(const Eight& sum, Shared<float> exchange, int64_t width,
                                DevicePointer<float> partials) {
  StoreEightShared(exchange + 8 * ThreadIndex(), sum);
  Barrier();
  const int64_t mine = BlockX() * kColumnsOfBlock + ThreadIndex();
  if (mine >= width) return;
  float total = exchange[ThreadIndex()];
  for (int w = 1; w < kColumnWarps; ++w) total += exchange[w * kColumnsOfBlock + ThreadIndex()];
  Store(partials + (BlockY() * width + mine), total);
}
static_assert(kColumnsOfBlock == kThreads);   // finally one column per thread
static_assert(kColumnsOfBlock == 8 * kWarp);  // `exchange` is contiguous over warps and lanes

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads, kAligned ? 6 : 1)
    ColumnSumsKernel(ColumnSumsArgs<T> args, int64_t row_block) {
  HADAL_SHARED(float, exchange, kColumnWarps* kColumnsOfBlock);
  const int64_t blocks = (args.rows + row_block - 1) / row_block, which = BlockY() / blocks;
  const DeviceMatrix<const T> x(args.x.data + which * args.x_step, args.x.stride);
  const ColumnLane at_first = ThisColumnLane(args.rows, args.width, row_block, BlockY() - which * blocks);
  const int64_t end = at_first.end, column = at_first.column;
  const int count = at_first.count;
  Eight sum;
  for (int64_t row = at_first.row; row < end && count > 0; row += kRowsAhead * kColumnWarps) {
    Eight ahead[kRowsAhead];
    HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      const int64_t at = row + i * kColumnWarps;  // after the end the last row is loaded again, and not added
      ahead[i] = LoadEight<kAligned>(x.row(at < end ? at : end - 1) + column, count);
    }
    HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      HADAL_UNROLL for (int c = 0; c < 8; ++c) {
        sum.v[c] = row + i * kColumnWarps < end ? sum.v[c] + ahead[i].v[c] : sum.v[c];
      }
    }
  }
  PutColumnSums(sum, exchange, args.width, args.partials);
}

template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ReluMaskSumsKernel(ReluMaskSumsArgs<T> args, int64_t row_block) {
  HADAL_SHARED(float, exchange, kColumnWarps* kColumnsOfBlock);
  const ColumnLane at = ThisColumnLane(args.rows, args.width, row_block, BlockY());
  Eight sum;
  for (int64_t row = at.row; row < at.end && at.count > 0; row += kRowsAhead * kColumnWarps) {
    Eight y[kRowsAhead], dx[kRowsAhead];
    HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      const int64_t ahead = row + i * kColumnWarps;
      if (ahead >= at.end) continue;
      y[i] = LoadEight<kAligned>(args.relu_output.row(ahead) + at.column, at.count);
      dx[i] = LoadEight<kAligned>(args.dx.row(ahead) + at.column, at.count);
    }
    HADAL_UNROLL for (int i = 0; i < kRowsAhead; ++i) {
      const int64_t ahead = row + i * kColumnWarps;
      if (ahead >= at.end) continue;
      HADAL_UNROLL for (int c = 0; c < 8; ++c) dx[i].v[c] = y[i].v[c] > 0.0f ? dx[i].v[c] * args.mask_scale : 0.0f;
      RoundTo<T>(dx[i]);  // adds the stored value
      StoreEight<kAligned>(args.dx.row(ahead) + at.column, dx[i], at.count);
      HADAL_UNROLL for (int c = 0; c < 8; ++c) sum.v[c] += dx[i].v[c];
    }
  }
  PutColumnSums(sum, exchange, args.width, args.partials);
}

// Returns the blocks of rows.
template <typename Args>
int64_t CheckSums(const Args& args) {
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.sums && args.partials);
  const int64_t row_block = ColumnRowBlock(args.rows, args.width);
  return (args.rows + row_block - 1) / row_block;
}

LaunchShape SumsShape(int64_t width, int64_t blocks) {
  return {.blocks_x = (width + kColumnsOfBlock - 1) / kColumnsOfBlock, .blocks_y = blocks, .threads = kThreads};
}

}  // namespace

template <typename T>
void BiasRows(StreamHandle stream, const BiasRowsArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(static_cast<bool>(args.y));
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.y) && On16Bytes(args.bias);
  Launch(stream, ShapeOfEights(args.rows, args.width), aligned ? BiasRowsKernel<T, true> : BiasRowsKernel<T, false>,
         args);
}

template <typename T>
void DropoutRows(StreamHandle stream, const DropoutRowsArgs<T>& args) {
  if (args.rows == 0 || !args.dropout.active()) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.y && args.dropout.position);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.y);
  Launch(stream, ShapeOfEights(args.rows, args.width),
         aligned ? DropoutRowsKernel<T, true> : DropoutRowsKernel<T, false>, args);
}

template <typename T>
void ReluMask(StreamHandle stream, const ReluMaskArgs<T>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.relu_output && args.dx);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.relu_output) && RowsOn16Bytes(args.dx);
  Launch(stream, ShapeOfEights(args.rows, args.width), aligned ? ReluMaskKernel<T, true> : ReluMaskKernel<T, false>,
         args);
}

template <typename T>
void ColumnSums(StreamHandle stream, const ColumnSumsArgs<T>& args, std::vector<ColumnMerge>* later) {
  if (args.rows == 0) return;
  HADAL_CHECK(static_cast<bool>(args.x));
  HADAL_CHECK(args.count == 1 || later != nullptr);
  const int64_t blocks = CheckSums(args);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.x) && args.x_step * sizeof(T) % 16 == 0;
  Launch(stream, SumsShape(args.width, args.count * blocks),
         aligned ? ColumnSumsKernel<T, true> : ColumnSumsKernel<T, false>, args, ColumnRowBlock(args.rows, args.width));
  for (int64_t i = 0; i < args.count; ++i) {
    const ColumnMerge merge = {.parts = args.partials.address + i * blocks * args.width,
                               .count = blocks,
                               .stride = args.width,
                               .width = args.width,
                               .sums = args.sums.address + i * args.sums_step};
    MergeColumns(stream, {&merge, 1}, later);
  }
}

template <typename T>
void ReluMaskSums(StreamHandle stream, const ReluMaskSumsArgs<T>& args, std::vector<ColumnMerge>* later) {
  if (args.rows == 0) return;
  HADAL_CHECK(args.relu_output && args.dx);
  const int64_t blocks = CheckSums(args);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.relu_output) && RowsOn16Bytes(args.dx);
  Launch(stream, SumsShape(args.width, blocks), aligned ? ReluMaskSumsKernel<T, true> : ReluMaskSumsKernel<T, false>,
         args, ColumnRowBlock(args.rows, args.width));
  const ColumnMerge merge = {.parts = args.partials.address,
                             .count = blocks,
                             .stride = args.width,
                             .width = args.width,
                             .sums = args.sums.address};
  MergeColumns(stream, {&merge, 1}, later);
}

template void BiasRows(StreamHandle, const BiasRowsArgs<float>&);
template void BiasRows(StreamHandle, const BiasRowsArgs<BFloat16>&);
template void DropoutRows(StreamHandle, const DropoutRowsArgs<float>&);
template void DropoutRows(StreamHandle, const DropoutRowsArgs<BFloat16>&);
template void ReluMask(StreamHandle, const ReluMaskArgs<float>&);
template void ReluMask(StreamHandle, const ReluMaskArgs<BFloat16>&);
template void ColumnSums(StreamHandle, const ColumnSumsArgs<float>&, std::vector<ColumnMerge>*);
template void ColumnSums(StreamHandle, const ColumnSumsArgs<BFloat16>&, std::vector<ColumnMerge>*);
template void ReluMaskSums(StreamHandle, const ReluMaskSumsArgs<float>&, std::vector<ColumnMerge>*);
template void ReluMaskSums(StreamHandle, const ReluMaskSumsArgs<BFloat16>&, std::vector<ColumnMerge>*);

}  // namespace hadal::cuda
