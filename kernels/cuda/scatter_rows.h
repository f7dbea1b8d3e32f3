// Copies rows to given rows on the device: y[index[i]] = x[i] (kernels/scatter_rows.h), with args.device_index. One
// element per thread. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/scatter_rows.h"

namespace hadal::cuda {

void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args);

}  // namespace hadal::cuda
