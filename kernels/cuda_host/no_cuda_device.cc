#include "kernels/cuda_host/cuda_device.h"

namespace hadal::cuda {
namespace {

absl::Status NoCuda() {
  return absl::NotFoundError("this hadal was built without CUDA; build it where nvcc 12.2 or later is found");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& /*options*/) { return NoCuda(); }

absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& /*options*/) { return NoCuda(); }

}  // namespace hadal::cuda
