// kernels/scatter_rows.h on the device: y[index[i]] = x[i]. One element per thread. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

template <typename T>
struct ScatterRowsArgs {
  int64_t rows = 0, width = 0;         // B, W
  DeviceMatrix<const T> x;             // [B, W]
  DevicePointer<const int32_t> index;  // [B]
  DeviceMatrix<T> y;                   // (=) in the rows of index
};
template <typename T>  // float, BFloat16
void ScatterRows(StreamHandle stream, const ScatterRowsArgs<T>& args);

}  // namespace hadal::cuda
