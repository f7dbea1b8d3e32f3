// Writes the values of one micro-batch that kernels read from device memory (kernels/device_batch.h) into a block of
// host memory, which the caller copies to the device.
//
// Computes what kernels need in addition to the batch itself: each token's position in its sentence, the rows that have
// the same token (for the gradient of the embedding), and the tiles into which attention divides the sentences. All
// other values, e.g. tokens, targets and branch gains, are copied.
#pragma once

#include <cstddef>

#include "kernels/device_batch.h"

namespace hadal::cuda {

// `block`: BatchBytes(shape) bytes of host memory. REQUIRES: `shape` is ShapeOf(content). Does not use the device.
void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block);

}  // namespace hadal::cuda
