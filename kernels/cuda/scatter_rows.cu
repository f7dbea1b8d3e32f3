#include "kernels/cuda/operations.h"

#include "kernels/cuda/rotary_columns.h"
#include "kernels/cuda/thread_layer.h"

namespace hadal::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
HADAL_KERNEL void HADAL_LAUNCH_BOUNDS(kThreads) ScatterRowsKernel(ScatterRowsArgs args) {
  const int64_t i = BlockX() * kThreads + ThreadIndex(), row = i / args.x.columns, column = i % args.x.columns;
  if (row >= args.x.rows) return;
  const DevicePointer<const T> from = ViewOf<T>(args.x).row(row);
  const DevicePointer<T> to = ViewOf<T>(args.y).row(Load(ViewOf(args.device_index) + row)) + column;
  if (!Given(args.rotary.table) || column >= args.turned_columns) return Store(to, Load(from + column));
  const DeviceRotary rotary = {ViewOf(args.rotary.table), static_cast<int32_t>(args.rotary.table.columns / 2)};
  const int in_head = static_cast<int>(column % args.head_width);
  const float x = ToFloat(Load(from + column));
  Store(to, FromFloat<T>(TurnedColumn(rotary, from + (column - in_head), in_head, x,
                                      Load(ViewOf(args.device_positions) + row))));
}

}  // namespace

void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args) {
  const int64_t elements = args.x.rows * args.x.columns;
  if (elements == 0) return;
  HADAL_CHECK(args.device_index != nullptr && (!args.rotary.active() || args.device_positions != nullptr));
  WithElement(args.x.storage, [&]<typename T>(T) {
    Launch(stream, {.blocks_x = (elements + kThreads - 1) / kThreads, .threads = kThreads}, ScatterRowsKernel<T>, args);
  });
}

}  // namespace hadal::cuda
