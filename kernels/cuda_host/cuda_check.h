// Check aborts with a message if `error`, the result of the CUDA call `what`, is a failure. For calls after which hadal
// cannot continue.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "runtime/check.h"

namespace hadal::cuda {

inline void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  CheckFailed(__FILE__, __LINE__, absl::StrCat("the GPU failed (", what, "): ", cudaGetErrorString(error)));
}

}  // namespace hadal::cuda
