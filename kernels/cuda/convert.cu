#include "kernels/cuda/convert.h"

#include "kernels/cuda/eight.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename From, typename To, bool kAligned>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ConvertKernel(ConvertArgs<From, To> args) {
  const int64_t eights = (args.width + 7) / 8, i = BlockX() * kThreads + ThreadIndex();
  const int64_t row = i / eights, column = 8 * (i % eights), left = args.width - column;
  if (row >= args.rows) return;
  const int count = left < 8 ? static_cast<int>(left) : 8;
  const Eight values = LoadEight<kAligned>(args.from.row(row) + column, count);
  StoreEight<kAligned>(args.to.row(row) + column, values, count);
}

}  // namespace

template <typename From, typename To>
void Convert(StreamHandle stream, const ConvertArgs<From, To>& args) {
  if (args.rows == 0) return;
  HADAL_CHECK_GE(args.width, 1);
  HADAL_CHECK(args.from && args.to);
  const bool aligned = args.width % 8 == 0 && RowsOn16Bytes(args.from) && RowsOn16Bytes(args.to);
  const int64_t blocks = (args.rows * ((args.width + 7) / 8) + kThreads - 1) / kThreads;
  Launch(stream, {.blocks_x = blocks, .threads = kThreads},
         aligned ? ConvertKernel<From, To, true> : ConvertKernel<From, To, false>, args);
}

template void Convert(StreamHandle, const ConvertArgs<float, BFloat16>&);
template void Convert(StreamHandle, const ConvertArgs<BFloat16, float>&);

}  // namespace hadal::cuda
