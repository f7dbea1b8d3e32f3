// kernels/scatter_rows.h on the device: y[index[i]] = x[i]. An element a thread. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

struct ScatterRowsArgs {
  int64_t rows = 0, width = 0;         // B, W
  DeviceMatrix<const float> x;         // [B, W]
  DevicePointer<const int32_t> index;  // [B]
  DeviceMatrix<float> y;               // (=) in the rows named
};
void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args);

}  // namespace hadal::cuda
