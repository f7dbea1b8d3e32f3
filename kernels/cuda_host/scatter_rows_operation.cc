#include "kernels/cuda/scatter_rows.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::ScatterRows(const Stream& stream, const hadal::ScatterRowsArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  DevicePointer<const int32_t> index = args.device_index;
  if (!index) index = device.launch_memory().Put(args.index.data, args.index.size);
  WithElement(args.x.storage, [&]<typename T>(T) {
    cuda::ScatterRows<T>(
        device.handle(),
        {.rows = args.x.rows, .width = args.x.columns, .x = ViewOf<T>(args.x), .index = index, .y = ViewOf<T>(args.y)});
  });
}

}  // namespace hadal::cuda
