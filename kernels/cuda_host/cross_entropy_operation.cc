#include "kernels/cuda/cross_entropy.h"

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"

namespace hadal::cuda {

void operation::CrossEntropy(const Stream& stream, const hadal::CrossEntropyArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  WithElement(args.logits.storage, [&]<typename T>(T) {
    CrossEntropyArgs<T> launch = {.rows = args.logits.rows,
                                  .vocabulary = args.logits.columns,
                                  .logits = ViewOf<T>(args.logits),
                                  .targets = args.device_targets,
                                  .label_smoothing = args.label_smoothing,
                                  .loss = args.loss.data,
                                  .nll = args.nll.data};
    if (!launch.targets) launch.targets = device.launch_memory().Put(args.targets.data, args.targets.size);
    if (args.gradient_scale != 0.0f && args.device_gradient_scale != nullptr) {
      launch.gradient_scale = args.device_gradient_scale;
    } else if (args.gradient_scale != 0.0f) {
      launch.gradient_scale = device.launch_memory().Put(args.gradient_scale);
    }
    cuda::CrossEntropy(device.handle(), launch);
  });
}

}  // namespace hadal::cuda
