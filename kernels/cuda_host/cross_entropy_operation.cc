#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operation_functions.h"

namespace hadal::cuda {

void operation::CrossEntropy(const Stream& stream, const CrossEntropyArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  CrossEntropyArgs placed = args;
  if (args.device_targets == nullptr) {
    placed.device_targets = device.launch_memory().Put(args.targets.data, args.targets.size).address;
  }
  if (args.gradient_scale == 0.0f) {
    placed.device_gradient_scale = nullptr;
  } else if (args.device_gradient_scale == nullptr) {
    placed.device_gradient_scale = device.launch_memory().Put(args.gradient_scale).address;
  }
  cuda::CrossEntropy(device.handle(), placed);
}

}  // namespace hadal::cuda
