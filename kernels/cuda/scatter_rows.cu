#include "kernels/cuda/scatter_rows.h"

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ScatterRowsKernel(ScatterRowsArgs<T> args) {
  const int64_t i = BlockX() * kThreads + ThreadIndex(), row = i / args.width, column = i % args.width;
  if (row >= args.rows) return;
  Store(args.y.row(Load(args.index + row)) + column, Load(args.x.row(row) + column));
}

}  // namespace

template <typename T>
void ScatterRows(StreamHandle stream, const ScatterRowsArgs<T>& args) {
  if (args.rows == 0 || args.width == 0) return;
  HADAL_CHECK(args.x && args.index && args.y);
  const int64_t elements = args.rows * args.width;
  Launch(stream, {.blocks_x = (elements + kThreads - 1) / kThreads, .threads = kThreads}, ScatterRowsKernel<T>, args);
}
template void ScatterRows(StreamHandle stream, const ScatterRowsArgs<float>& args);
template void ScatterRows(StreamHandle stream, const ScatterRowsArgs<BFloat16>& args);

}  // namespace hadal::cuda
