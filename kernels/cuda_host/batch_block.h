// Fills a micro-batch's block (kernels/device_batch.h): groups tokens, cuts sentences into tiles, copies the rest.
#pragma once

#include <cstddef>

#include "kernels/device_batch.h"

namespace hadal::cuda {

// `block`: BatchBytes(shape) bytes of host memory. REQUIRES: `shape` is ShapeOf(content). No work on the device.
void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block);

}  // namespace hadal::cuda
