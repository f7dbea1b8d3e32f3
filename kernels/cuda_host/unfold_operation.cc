#include "kernels/cuda/unfold.h"

#include <vector>

#include "kernels/cuda_host/operation_functions.h"
#include "kernels/cuda_host/operation_views.h"
#include "kernels/unfold.h"

namespace hadal::cuda {
namespace {

static_assert(kTaps == kConvolutionTaps);

DeviceTaps DeviceTapsOf(LaunchDevice& device, ConstTokens x_offsets, ConstTokens u_offsets,
                        const DeviceTaps& device_taps) {
  if (device_taps.taps != nullptr) return device_taps;
  const std::vector<RowTaps> taps = TapsOfRows(std::vector<int32_t>(x_offsets.data, x_offsets.data + x_offsets.size),
                                               std::vector<int32_t>(u_offsets.data, u_offsets.data + u_offsets.size));
  const auto rows = static_cast<int64_t>(taps.size());
  return {device.launch_memory().Put(taps.data(), rows).address, rows};
}

}  // namespace

void operation::Unfold(const Stream& stream, const hadal::UnfoldArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const DeviceTaps device_taps = DeviceTapsOf(device, args.x_offsets, args.u_offsets, args.device_taps);
  const auto launch = [&]<typename X, typename U>(X, U) {
    cuda::Unfold<X, U>(device.handle(), {.rows = args.u.rows,
                                         .width = args.x.columns,
                                         .taps = device_taps.taps + args.first,
                                         .x = ViewOf<X>(args.x),
                                         .u = ViewOf<U>(args.u)});
  };
  if (args.x.storage == Storage::kBFloat16) return launch(BFloat16(), BFloat16());
  WithElement(args.u.storage, [&]<typename U>(U) { launch(float(), U()); });
}

void operation::Fold(const Stream& stream, const hadal::FoldArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const DeviceTaps device_taps = DeviceTapsOf(device, args.x_offsets, args.u_offsets, args.device_taps);
  WithElement(args.du.storage, [&]<typename U>(U) {
    cuda::Fold<U>(device.handle(), {.first = args.first,
                                    .rows = args.du.rows,
                                    .width = args.dx.columns,
                                    .all_rows = device_taps.rows,
                                    .taps = device_taps.taps,
                                    .du = ViewOf<U>(args.du),
                                    .dx = ViewOf(args.dx)});
  });
}

}  // namespace hadal::cuda
