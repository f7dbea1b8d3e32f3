// Fills a micro-batch's block (kernels/device_batch.h): tokens grouped, sentences cut into tiles, the rest copied.
#pragma once

#include <cstddef>

#include "kernels/device_batch.h"

namespace hadal::cuda {

// `block`: BatchBytes(shape) bytes of the host.  REQUIRES: `shape` is ShapeOf(content). Reads and writes the host only.
void WriteBatch(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block);

}  // namespace hadal::cuda
