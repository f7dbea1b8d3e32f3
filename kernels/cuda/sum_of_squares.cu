#include "kernels/cuda/sum_of_squares.h"

#include "kernels/cuda/row_team.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;

HADAL_DEVICE SquaresRange ChunkOfSlice(const SumOfSquaresArgs& args, int64_t slice, int64_t chunk) {
  const SquaresRange range = Load(args.ranges + slice);
  const int64_t begin = range.begin + chunk * kSquaresChunk;
  return {begin, begin + kSquaresChunk < range.end ? begin + kSquaresChunk : range.end};
}

// Block (x, y): chunk x of slice y. Chunks after a slice's end store 0, which the second kernel does not read.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) SquaresOfChunksKernel(SumOfSquaresArgs args) {
  HADAL_SHARED(double, warps, kWarps);
  const SquaresRange range = ChunkOfSlice(args, BlockY(), BlockX());
  double sum = 0.0;
  for (int64_t i = range.begin + ThreadIndex(); i < range.end; i += kThreads) {
    const double x = static_cast<double>(Load(args.x + i));
    sum = MulAdd(x, x, sum);
  }
  sum = SumOfBlock<double>(sum, warps, kWarps);
  if (ThreadIndex() == 0) Store(args.partials + BlockY() * BlocksX() + BlockX(), sum);
}

// One thread per slice.
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) SumChunksKernel(SumOfSquaresArgs args, int64_t chunks) {
  const int64_t slice = BlockX() * kThreads + ThreadIndex();
  if (slice >= args.slices) return;
  const SquaresRange range = Load(args.ranges + slice);
  double sum = 0.0;
  for (int64_t chunk = 0; range.begin + chunk * kSquaresChunk < range.end; ++chunk) {
    sum += Load(args.partials + slice * chunks + chunk);
  }
  Store(args.sums + slice, sum);
}

}  // namespace

void SumOfSquares(StreamHandle stream, const SumOfSquaresArgs& args) {
  if (args.slices == 0) return;
  HADAL_CHECK(args.x && args.ranges && args.sums);
  HADAL_CHECK_LE(args.slices, 65535);  // the grid's second dimension
  const int64_t chunks = (args.max_slice_size + kSquaresChunk - 1) / kSquaresChunk;
  if (chunks > 0) {
    HADAL_CHECK(args.partials);
    Launch(stream, {.blocks_x = chunks, .blocks_y = args.slices, .threads = kThreads}, SquaresOfChunksKernel, args);
  }
  Launch(stream, {.blocks_x = (args.slices + kThreads - 1) / kThreads, .threads = kThreads}, SumChunksKernel, args,
         chunks);
}

}  // namespace hadal::cuda
