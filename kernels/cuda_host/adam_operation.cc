#include "kernels/cuda/adam.h"

#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operation_functions.h"

namespace hadal::cuda {

void operation::AdamStep(const Stream& stream, const AdamArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  cuda::AdamStep(device.handle(), args, device.launch_memory().Put(AdamScalarsOf(args)));
}

}  // namespace hadal::cuda
