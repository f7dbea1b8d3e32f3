// Fills a micro-batch's block (kernels/device_batch.h): groups tokens, divides sentences into tiles, copies the rest.
#pragma once

#include <cstddef>

#include "kernels/device_batch.h"

namespace hadal::cuda {

// `block`: BatchBytes(shape) bytes of host memory. REQUIRES: `shape` is ShapeOf(content). Does not use the device.
void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block);

}  // namespace hadal::cuda
