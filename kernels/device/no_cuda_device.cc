#include "kernels/device/cuda_device.h"

namespace hadal::cuda {

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& /*options*/) {
  return absl::NotFoundError("this hadal was built without CUDA; build it where nvcc 12.2 or later is found");
}

}  // namespace hadal::cuda
