#include "kernels/cuda/add.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) AddKernel(AddArgs args) {
  const int64_t first = 8 * (BlockX() * kThreads + ThreadIndex());
  if (first >= args.size) return;
  const auto add = [&]<bool kVector>(int count) {
    Eight sum = LoadEight<kVector>(args.sum + first, count);
    const Eight values = LoadEight<kVector>(args.values + first, count);
    HADAL_UNROLL for (int i = 0; i < 8; ++i) sum.v[i] += values.v[i];
    StoreEight<kVector>(args.sum + first, sum, count);
  };
  if (kAligned && args.size - first >= 8) {
    add.template operator()<true>(8);
  } else {
    add.template operator()<false>(args.size - first < 8 ? static_cast<int>(args.size - first) : 8);
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
