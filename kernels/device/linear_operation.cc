#include "kernels/cuda/linear_epilogue.h"
#include "kernels/device/operation_functions.h"
#include "kernels/device/operation_views.h"

namespace hadal::cuda {
namespace {

// The bias where products may read it: its own place, or a copy in scratch, which the stream's order keeps until the product has run.
ConstAnyVector OnMatmulBoundary(ConstAnyVector bias, LaunchDevice& device) {
  if (MayBeBias(bias)) return bias;
  const int64_t bytes = bias.size * BytesOf(bias.storage);
  HADAL_CHECK_LE(bytes, LaunchMemory::kScratchBytes);
  device.CopyWithin(device.launch_memory().scratch(), bias.data, bytes);
  bias.data = device.launch_memory().scratch();
  return bias;
}

}  // namespace

void operation::LinearForward(const Stream& stream, const hadal::LinearForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  device.Multiply({.m = args.y.rows,
                   .n = args.y.columns,
                   .k = args.x.columns,
                   .a = args.x,
                   .b = args.weight,
                   .b_transposed = true,
                   .bias = OnMatmulBoundary(args.bias, device),
                   .relu = args.relu,
                   .c = args.y});
  if (!args.dropout.active()) return;
  WithElement(args.y.storage, [&]<typename T>(T) {
    DropoutRows<T>(device.handle(), {.rows = args.y.rows,
                                     .width = args.y.columns,
                                     .dropout = ViewOf(args.dropout, device),
                                     .y = ViewOf<T>(args.y)});
  });
}

void operation::LinearBackwardInput(const Stream& stream, const hadal::LinearBackwardInputArgs& args) {
  DeviceOf(stream).Multiply({.m = args.dx.rows,
                             .n = args.dx.columns,
                             .k = args.dy.columns,
                             .a = args.dy,
                             .b = args.weight,
                             .accumulate = args.accumulate,
                             .c = args.dx});
  if (args.relu_output.empty()) return;
  operation::ReluBackward(stream, {.relu_output = args.relu_output, .mask_scale = args.mask_scale, .dx = args.dx});
}

void operation::ReluBackward(const Stream& stream, const hadal::ReluBackwardArgs& args) {
  WithElement(args.dx.storage, [&]<typename T>(T) {
    ReluMask<T>(DeviceOf(stream).handle(), {.rows = args.dx.rows,
                                            .width = args.dx.columns,
                                            .relu_output = ViewOf<T>(args.relu_output),
                                            .mask_scale = args.mask_scale,
                                            .dx = ViewOf<T>(args.dx)});
  });
}

void operation::LinearBackwardWeight(const Stream& stream, const hadal::LinearBackwardWeightArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  device.Multiply({.m = args.d_weight.rows,
                   .n = args.d_weight.columns,
                   .k = args.dy.rows,
                   .a = args.dy,
                   .a_transposed = true,
                   .b = args.x,
                   .accumulate = true,
                   .c = args.d_weight});
  if (args.d_bias.empty()) return;
  static_assert(kColumnPartials * sizeof(float) <= LaunchMemory::kScratchBytes);
  WithElement(args.dy.storage, [&]<typename T>(T) {
    ColumnSums<T>(device.handle(), {.rows = args.dy.rows,
                                    .width = args.dy.columns,
                                    .x = ViewOf<T>(args.dy),
                                    .sums = args.d_bias.data,
                                    .partials = reinterpret_cast<float*>(device.launch_memory().scratch())});
  });
}

}  // namespace hadal::cuda
