#include "kernels/cuda_host/cuda_device.h"
#include "kernels/cuda_host/held_streams.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal::cuda {
namespace {

absl::Status NoCuda() {
  constexpr char kText[] = "this hadal was built without CUDA; build it where nvcc 12.2 or later is found";
  const bool has_driver = PathExists("/dev/nvidiactl");
  return has_driver ? UnavailableError(kText, " (this host has an NVIDIA driver)") : NotFoundError(kText);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& /*options*/) { return NoCuda(); }

absl::StatusOr<CudaFacts> LookAtCudaDevice(const CudaDeviceOptions& /*options*/) { return NoCuda(); }

absl::StatusOr<HeldStreams> CountHeldStreams(int /*streams*/, int /*discarded*/) { return NoCuda(); }

}  // namespace hadal::cuda
