#include "kernels/cuda/scatter_rows.h"

#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {

void operation::ScatterRows(const Stream& stream, const hadal::ScatterRowsArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  cuda::ScatterRows(device.handle(), {.rows = args.x.rows,
                                      .width = args.x.columns,
                                      .x = ViewOf(args.x),
                                      .index = device.launch_memory().Put(args.index.data, args.index.size),
                                      .y = ViewOf(args.y)});
}

}  // namespace hadal::cuda
