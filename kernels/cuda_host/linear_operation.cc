#include "kernels/cuda/linear_epilogue.h"
#include "kernels/cuda_host/column_sum_memory.h"
#include "kernels/cuda_host/dropout_position.h"
#include "kernels/cuda_host/operations.h"

namespace hadal::cuda {
namespace {

// Returns the bias at an address that products may read: its own, or a copy in scratch, which the stream's order keeps
// until the product has run.
ConstAnyVector BiasForProduct(ConstAnyVector bias, LaunchDevice& device) {
  if (OnMatmulBoundary(bias.data)) return bias;
  const int64_t bytes = bias.size * BytesOf(bias.storage);
  HADAL_CHECK_LE(bytes, LaunchMemory::kScratchBytes);
  device.CopyWithin(device.launch_memory().scratch(), bias.data, bytes);
  bias.data = device.launch_memory().scratch();
  return bias;
}

// Adds bias and ReLU after a product that could not include them.
void AddBias(LaunchDevice& device, const ConstAnyVector& bias, bool relu, const AnyMatrix& y) {
  WithElement(y.storage, [&]<typename T>(T) {
    BiasRows<T>(device.handle(),
                {.rows = y.rows, .width = y.columns, .bias = bias.of<T>().data, .relu = relu, .y = ViewOf<T>(y)});
  });
}

}  // namespace

bool operation::HasReluMask(const Stream& stream, const hadal::ReluMaskArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  const int64_t in = args.hidden_weight.columns, hidden = args.hidden_weight.rows, out = args.contraction_weight.rows;
  const Storage storage = args.hidden_weight.storage;
  // Dense and 16-byte aligned, like the products' arguments later; never dereferenced.
  std::byte* const place = device.launch_memory().scratch();
  MatmulArgs forward{.m = args.rows,
                     .n = hidden,
                     .k = in,
                     .a = AnyMatrix(place, args.rows, in, storage),
                     .b = args.hidden_weight,
                     .b_transposed = true,
                     .relu = true,
                     .written_mask = place,
                     .c = AnyMatrix(place, args.rows, hidden, storage)};
  if (args.hidden_bias) {
    forward.bias.data = place;
    forward.bias.size = hidden;
    forward.bias.storage = storage;
  }
  return device.matmul().Offers(forward) && device.matmul().Offers({.m = args.rows,
                                                                    .n = hidden,
                                                                    .k = out,
                                                                    .a = AnyMatrix(place, args.rows, out, storage),
                                                                    .b = args.contraction_weight,
                                                                    .read_mask = place,
                                                                    .c = AnyMatrix(place, args.rows, hidden, storage)});
}

void operation::LinearForward(const Stream& stream, const hadal::LinearForwardArgs& args) {
  LaunchDevice& device = DeviceOf(stream);
  MatmulArgs product{.m = args.y.rows,
                     .n = args.y.columns,
                     .k = args.x.columns,
                     .a = args.x,
                     .b = args.weight,
                     .b_transposed = true,
                     .bias = BiasForProduct(args.bias, device),
                     .relu = args.relu,
                     .written_mask = args.relu_mask,
                     .c = args.y};
  if (args.relu_mask != nullptr || device.matmul().Offers(product)) {
    device.Multiply(product);
  } else {
    const ConstAnyVector bias = product.bias;
    product.bias = {};
    product.relu = false;
    device.Multiply(product);
    AddBias(device, bias, args.relu, args.y);
  }
  if (!args.dropout.active()) return;
  WithElement(args.y.storage, [&]<typename T>(T) {
    DropoutRows<T>(device.handle(), {.rows = args.y.rows,
                                     .width = args.y.columns,
                                     .dropout = DeviceDropoutOf(OnDevice(args.dropout, device)),
                                     .y = ViewOf<T>(args.y)});
  });
}

void operation::LinearBackwardInput(const Stream& stream, const hadal::LinearBackwardInputArgs& args) {
  DeviceOf(stream).Multiply({.m = args.dx.rows,
                             .n = args.dx.columns,
                             .k = args.dy.columns,
                             .a = args.dy,
                             .b = args.weight,
                             .read_mask = args.relu_mask,
                             .accumulate = args.accumulate,
                             .c = args.dx});
  if (args.relu_output.empty()) return;
  if (args.relu_bias_gradient.empty()) {
    return operation::ReluBackward(stream,
                                   {.relu_output = args.relu_output, .mask_scale = args.mask_scale, .dx = args.dx});
  }
  const ColumnSumMemory memory(stream, args.batch, ColumnSumFloats(args.dx.rows, args.dx.columns), /*count=*/1);
  WithElement(args.dx.storage, [&]<typename T>(T) {
    ReluMaskSums<T>(DeviceOf(stream).handle(),
                    {.rows = args.dx.rows,
                     .width = args.dx.columns,
                     .relu_output = ViewOf<T>(args.relu_output),
                     .mask_scale = args.mask_scale,
                     .dx = ViewOf<T>(args.dx),
                     .sums = args.relu_bias_gradient.data,
                     .partials = memory.partials},
                    memory.later);
  });
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

}  // namespace hadal::cuda
