#include "kernels/cuda/scatter_rows.h"

#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ScatterRowsKernel(ScatterRowsArgs args) {
  const int64_t i = BlockX() * kThreads + ThreadIndex(), row = i / args.x.columns, column = i % args.x.columns;
  if (row >= args.x.rows) return;
  Store(ViewOf<T>(args.y).row(Load(ViewOf(args.device_index) + row)) + column,
        Load(ViewOf<T>(args.x).row(row) + column));
}

}  // namespace

void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args) {
  const int64_t elements = args.x.rows * args.x.columns;
  if (elements == 0) return;
  HADAL_CHECK(args.device_index != nullptr);
  WithElement(args.x.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = (elements + kThreads - 1) / kThreads, .threads = kThreads}, ScatterRowsKernel<T>, args);
  });
}

}  // namespace hadal::cuda
