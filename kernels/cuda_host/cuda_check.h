// Ends the program after a failure of the CUDA runtime from which it cannot go on.
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
