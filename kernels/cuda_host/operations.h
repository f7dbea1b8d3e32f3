// The table of the CUDA kernels (kernels/device_kernels.h) for every implementation of LaunchDevice (launch_device.h).
//
// An operation takes the arguments of kernels/<op>.h, copies to the device the host values that the kernel reads unless
// the arguments have their device addresses, and launches the kernel. It converts sentence offsets to tiles (attention)
// or positions (embedding), and groups tokens (embedding's gradient). Asynchronous, except SumsOfSquares, which waits
// for the device because its result is on the host.
#pragma once

#include <cstddef>
#include <span>

#include "kernels/device_batch.h"
#include "kernels/device_kernels.h"

namespace hadal::cuda {

const DeviceKernels& Operations();

// Writes the values of one micro-batch that kernels read from device memory (kernels/device_batch.h) into `block`,
// BatchBytes(shape) bytes of host memory, which the caller copies to the device. Computes what kernels need in addition
// to the batch itself: each token's position in its sentence, the rows that have the same token (for the gradient of
// the embedding), and the tiles into which attention divides the sentences. REQUIRES: `shape` is ShapeOf(content). Does
// not use the device.
void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block);

// The host functions of attention and of linear layers (<op>_operation.cc, weight_gradients_operation.cc). The table
// refers to them, and for other operations to the kernels' own launch functions (kernels/cuda/operations.h and <op>.h)
// or to functions of operations.cc. The dispatcher has checked the arguments.
namespace operation {

void AttentionForward(const Stream& stream, const hadal::AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const hadal::AttentionBackwardArgs& args);
bool HasReluMask(const Stream& stream, const hadal::ReluMaskArgs& args);
void LinearForward(const Stream& stream, const hadal::LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const hadal::LinearBackwardInputArgs& args);
void LinearBackwardWeights(const Stream& stream, std::span<hadal::LinearBackwardWeightArgs> products,
                           GradientBatch* batch);
void ReluBackward(const Stream& stream, const hadal::ReluBackwardArgs& args);

}  // namespace operation

}  // namespace hadal::cuda
