#include "kernels/cuda/column_merge.h"

#include "kernels/cuda_host/launch_device.h"
#include "kernels/cuda_host/operation_functions.h"

namespace hadal::cuda {

void operation::MergeColumns(const Stream& stream, std::span<const ColumnMerge> merges) {
  cuda::MergeColumns(DeviceOf(stream).handle(), merges);
}

}  // namespace hadal::cuda
