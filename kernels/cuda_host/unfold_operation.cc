#include "kernels/cuda/unfold.h"

#include <vector>

#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operations.h"

namespace hadal::cuda {
namespace {

// Calls kernel(handle, args) with the rows' taps in device memory.
template <typename Args>
void WithTaps(const Stream& stream, Args args, void (*kernel)(StreamHandle, const Args&)) {
  LaunchDevice& device = DeviceOf(stream);
  if (args.device_taps.taps == nullptr) {
    const ConstTokens &x = args.x_offsets, &u = args.u_offsets;
    const std::vector<RowTaps> taps = TapsOfRows({x.data, x.data + x.size}, {u.data, u.data + u.size});
    const auto rows = static_cast<int64_t>(taps.size());
    args.device_taps = {device.launch_memory().Put(taps.data(), rows).address, rows};
  }
  kernel(device.handle(), args);
}

}  // namespace

void operation::Unfold(const Stream& stream, const UnfoldArgs& args) { WithTaps(stream, args, cuda::Unfold); }
void operation::Fold(const Stream& stream, const FoldArgs& args) { WithTaps(stream, args, cuda::Fold); }

}  // namespace hadal::cuda
