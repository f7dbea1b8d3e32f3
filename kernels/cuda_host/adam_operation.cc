#include "kernels/cuda/adam.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::AdamStep(const Stream& stream, const hadal::AdamArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  cuda::AdamStep(device.handle(), {.size = args.parameter.size,
                                   .parameter = args.parameter.data,
                                   .gradient = args.gradient.data,
                                   .first_moment = args.first_moment.data,
                                   .second_moment = args.second_moment.data,
                                   .rounded = args.rounded.data,
                                   .scalars = device.launch_memory().Put(AdamScalarsOf(args))});
}

}  // namespace hadal::cuda
