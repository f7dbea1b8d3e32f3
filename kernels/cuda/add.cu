#include "kernels/cuda/add.h"

#include "kernels/cuda/thread_layer.h"
#include "kernels/cuda/warp_span.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) AddKernel(AddArgs args) {
  const WarpSpan span = ThisWarpSpan(args.size);
  if (kAligned && span.whole()) {
    Eight sum = LoadRuns(args.sum, span);
    const Eight values = LoadRuns(args.values, span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) sum.v[i] += values.v[i];
    StoreRuns(args.sum, span, sum);
  } else {
    span.ForSingles([&](int64_t i) { Store(args.sum + i, Load(args.sum + i) + Load(args.values + i)); });
  }
}

}  // namespace

void Add(StreamHandle stream, const AddArgs& args) {
  if (args.size == 0) return;
  HADAL_CHECK(args.sum && args.values);
  const bool aligned = On16Bytes(args.sum) && On16Bytes(args.values);
  Launch(stream, {.blocks_x = (args.size + 8 * kThreads - 1) / (8 * kThreads), .threads = kThreads},
         aligned ? AddKernel<true> : AddKernel<false>, args);
}

}  // namespace hadal::cuda
