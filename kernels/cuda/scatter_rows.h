// kernels/scatter_rows.h on the device, with an index in device memory. One element per thread. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/scatter_rows.h"

namespace hadal::cuda {

void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args);

}  // namespace hadal::cuda
