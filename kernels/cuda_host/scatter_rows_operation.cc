#include "kernels/cuda/scatter_rows.h"

#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operation_functions.h"

namespace hadal::cuda {

void operation::ScatterRows(const Stream& stream, const ScatterRowsArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  ScatterRowsArgs placed = args;
  if (args.device_index == nullptr) {
    placed.device_index = device.launch_memory().Put(args.index.data, args.index.size).address;
  }
  if (args.rotary.active() && args.device_positions == nullptr) {
    placed.device_positions = device.launch_memory().Put(args.positions.data, args.positions.size).address;
  }
  cuda::ScatterRows(device.handle(), placed);
}

}  // namespace hadal::cuda
