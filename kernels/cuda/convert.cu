#include "kernels/cuda/operations.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename From, typename To, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ConvertKernel(ConvertArgs args) {
  const int64_t eights = (args.to.columns + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights), left = args.to.columns - column;
  if (row >= args.to.rows) return;
  const int count = left < 8 ? static_cast<int>(left) : 8;
  const Eight values = LoadEight<kAligned>(ViewOf<From>(args.from).row(row) + column, count);
  StoreEight<kAligned>(ViewOf<To>(args.to).row(row) + column, values, count);
}

}  // namespace

void Convert(StreamHandle stream, const ConvertArgs& args) {
  if (args.to.rows == 0) return;
  const bool aligned = InAlignedEights(args.to.columns, {args.from, args.to});
  const int64_t blocks = (args.to.rows * ((args.to.columns + 7) / 8) + kThreads - 1) / kThreads;
  const auto launch = [&]<typename From, typename To>(From, To) {
    Launch(stream, {.blocks_x = blocks, .threads = kThreads},
           aligned ? ConvertKernel<From, To, true> : ConvertKernel<From, To, false>, args);
  };
  if (args.from.storage == Storage::kFloat32) return launch(float(), BFloat16());
  launch(BFloat16(), float());
}

}  // namespace hadal::cuda
