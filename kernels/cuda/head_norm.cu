#include "kernels/cuda/operations.h"

#include "kernels/cuda/column_merge.h"
#include "kernels/cuda/eight.h"
#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

// A lane's columns of a head.
struct HeadLane {
  int64_t width, column;
  int count;  // 8, fewer at the head's end, or 0

  HADAL_DEVICE explicit HeadLane(int64_t head_width)
      : width(head_width), column(8 * static_cast<int64_t>(ThreadIndex() % kWarp)) {
    const int64_t left = width - column;
    count = left >= 8 ? 8 : left > 0 ? static_cast<int>(left) : 0;
  }
  // The lane's columns of `from`, 0 where there are none.
  template <bool kAligned, typename T>
  HADAL_DEVICE Eight Get(DevicePointer<T> from) const {
    return count > 0 ? LoadEight<kAligned>(from + column, count) : Eight();
  }
};

// Replaces x by (x − mean)·rstd, 0 where there is no column, and returns rstd. Every lane of the warp must call it.
HADAL_DEVICE float Normalise(const HeadLane& lane, const NormForm& form, Eight& x) {
  const auto width = static_cast<float>(lane.width);
  float mean = 0.0f, squares = 0.0f;
  if (form.centred) {
    HADAL_UNROLL for (int c = 0; c < 8; ++c) mean += x.v[c];
    mean = SumOfWarp(mean) / width;
  }
  HADAL_UNROLL for (int c = 0; c < 8; ++c) {
    x.v[c] = c < lane.count ? x.v[c] - mean : 0.0f;
    squares = MulAdd(x.v[c], x.v[c], squares);
  }
  const float rstd = InverseRoot(SumOfWarp(squares) / width + form.epsilon);
  HADAL_UNROLL for (int c = 0; c < 8; ++c) x.v[c] *= rstd;
  return rstd;
}

// One warp for each head of a row.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadNormKernel(HeadNormForwardArgs args, int64_t heads) {
  const HeadLane lane(args.scale.size);
  const int64_t i = BlockX() * kWarps + ThreadIndex() / kWarp, row = i / heads, first = i % heads * lane.width;
  if (row >= args.x.rows) return;
  Eight x = lane.Get<kAligned>(ViewOf<T>(args.x).row(row) + first), shift;
  Normalise(lane, args.form, x);
  if (lane.count == 0) return;
  const Eight scale = lane.Get<kAligned>(ViewOf(args.scale));
  if (Given(args.shift)) shift = lane.Get<kAligned>(ViewOf(args.shift));
  HADAL_UNROLL for (int c = 0; c < 8; ++c) x.v[c] = MulAdd(x.v[c], scale.v[c], shift.v[c]);
  StoreEight<kAligned>(ViewOf<T>(args.y).row(row) + (first + lane.column), x, lane.count);
}

// Block x: rows [x · kHeadNormRowBlock, …). Stores their sums to d_scale and d_shift in `partials`.
template <typename T, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) HeadNormGradientKernel(HeadNormBackwardArgs args, int64_t heads) {
  HADAL_SHARED(float, sums, kWarps* kWidestHeadNorm);
  const HeadLane lane(args.scale.size);
  const int64_t first_row = BlockX() * kHeadNormRowBlock, left = args.dy.rows - first_row;
  const int64_t pairs = (left < kHeadNormRowBlock ? left : kHeadNormRowBlock) * heads;
  const Eight scale = lane.Get<kAligned>(ViewOf(args.scale));
  Eight of_scale, of_shift;
  for (int64_t pair = ThreadIndex() / kWarp; pair < pairs; pair += kWarps) {
    const int64_t row = first_row + pair / heads, first = pair % heads * lane.width;
    const Eight dy = lane.Get<kAligned>(ViewOf<T>(args.dy).row(row) + first);
    Eight x = lane.Get<kAligned>(ViewOf<T>(args.x).row(row) + first), dx;
    const float rstd = Normalise(lane, args.form, x);
    float mean = 0.0f, product = 0.0f;
    HADAL_UNROLL for (int c = 0; c < 8; ++c) {
      of_scale.v[c] = MulAdd(dy.v[c], x.v[c], of_scale.v[c]);
      of_shift.v[c] += dy.v[c];
      dx.v[c] = dy.v[c] * scale.v[c];
      mean += dx.v[c];
      product = MulAdd(dx.v[c], x.v[c], product);
    }
    mean = args.form.centred ? SumOfWarp(mean) / static_cast<float>(lane.width) : 0.0f;
    product = SumOfWarp(product) / static_cast<float>(lane.width);
    HADAL_UNROLL for (int c = 0; c < 8; ++c) dx.v[c] = MulAdd(-x.v[c], product, dx.v[c] - mean) * rstd;
    if (lane.count > 0) StoreEight<kAligned>(ViewOf<T>(args.dx).row(row) + (first + lane.column), dx, lane.count);
  }
  const Eight of_both[] = {of_scale, of_shift};
  for (int k = 0; k < 2; ++k) {
    Barrier();  // the previous sums may still be read
    StoreEightShared(Shared<float>(sums) + 8 * ThreadIndex(), of_both[k]);
    Barrier();
    for (int64_t column = ThreadIndex(); column < lane.width; column += kThreads) {
      float total = sums[column];
      for (int w = 1; w < kWarps; ++w) total += sums[w * kWidestHeadNorm + column];
      Store(ViewOf(args.partials) + ((2 * BlockX() + k) * lane.width + column), total);
    }
  }
}

}  // namespace

void HeadNormForward(StreamHandle stream, const HeadNormForwardArgs& args) {
  if (args.x.rows == 0) return;
  const int64_t width = args.scale.size, heads = args.x.columns / width;
  HADAL_CHECK_LE(width, kWidestHeadNorm);
  const bool aligned = InAlignedEights(width, {args.x, args.y}) && On16Bytes(args.scale, args.shift);
  WithElement(args.x.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = (args.x.rows * heads + kWarps - 1) / kWarps, .threads = kThreads},
           aligned ? HeadNormKernel<T, true> : HeadNormKernel<T, false>, args, heads);
  });
}

void HeadNormBackward(StreamHandle stream, const HeadNormBackwardArgs& args) {
  if (args.dy.rows == 0) return;
  const int64_t width = args.scale.size, heads = args.dy.columns / width;
  HADAL_CHECK_LE(width, kWidestHeadNorm);
  const bool aligned = InAlignedEights(width, {args.dy, args.x, args.dx}) && On16Bytes(args.scale);
  const int64_t blocks = (args.dy.rows + kHeadNormRowBlock - 1) / kHeadNormRowBlock;
  WithElement(args.dy.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = blocks, .threads = kThreads},
           aligned ? HeadNormGradientKernel<T, true> : HeadNormGradientKernel<T, false>, args, heads);
  });
  ColumnMerge scale = {.parts = args.partials.data, .count = blocks, .stride = 2 * width, .width = width};
  ColumnMerge shift = scale;
  scale.sums = args.d_scale.data;
  shift.parts += width, shift.sums = args.d_shift.data;
  const ColumnMerge merges[] = {scale, shift};
  MergeColumns(stream, std::span(merges, Given(args.d_shift) ? 2 : 1));
}

}  // namespace hadal::cuda
