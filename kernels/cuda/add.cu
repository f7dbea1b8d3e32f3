#include "kernels/cuda/operations.h"

#include "kernels/cuda/thread_layer.h"
#include "kernels/cuda/warp_span.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) AddKernel(AddArgs args) {
  const WarpSpan span = ThisWarpSpan(args.sum.size);
  if (kAligned && span.whole()) {
    Eight sum = LoadRuns(ViewOf(args.sum), span);
    const Eight values = LoadRuns(ViewOf(args.values), span);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) sum.v[i] += values.v[i];
    StoreRuns(ViewOf(args.sum), span, sum);
  } else {
    span.ForSingles(
        [&](int64_t i) { Store(ViewOf(args.sum) + i, Load(ViewOf(args.sum) + i) + Load(ViewOf(args.values) + i)); });
  }
}

}  // namespace

void Add(StreamHandle stream, const AddArgs& args) {
  if (args.sum.size == 0) return;
  const bool aligned = On16Bytes(ViewOf(args.sum)) && On16Bytes(ViewOf(args.values));
  Launch(stream, {.blocks_x = (args.sum.size + 8 * kThreads - 1) / (8 * kThreads), .threads = kThreads},
         aligned ? AddKernel<true> : AddKernel<false>, args);
}

}  // namespace hadal::cuda
