#include <utility>

#include "kernels/cuda_host/cuda_device.h"
#include "runtime/check.h"
#include "tests/support/test_device.h"

namespace hadal::testing {

std::unique_ptr<Device> MakeTestDevice(uint64_t /*seed*/) {
  absl::StatusOr<std::unique_ptr<Device>> device = cuda::OpenCudaDevice({});
  if (!device.ok()) CheckFailed(__FILE__, __LINE__, std::string(device.status().message()));
  return *std::move(device);
}

}  // namespace hadal::testing
