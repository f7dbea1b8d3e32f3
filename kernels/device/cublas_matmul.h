// Products by cuBLASLt, which is opened with dlopen when the first GPU is: a program needs no library of CUDA to start.
//
// A plan (algorithm and descriptors) is made once for each shape: cuBLASLt's first choice for the shape, strides, alignment, epilogue and
// kWorkspaceBytes of workspace, so a function of (shape, types, device, library). Bias and ReLU ride on the product.
// Threads: one. Errors of the library behind the start abort with its words.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "kernels/device/matmul.h"
#include "runtime/device.h"

namespace hadal::cuda {

inline constexpr int64_t kMatmulWorkspaceBytes = 32 << 20;

// `workspace`: kMatmulWorkspaceBytes of the current CUDA device, which no other stream's products use.
// Errors: Unavailable where the library is not found.
absl::StatusOr<std::unique_ptr<Matmul>> MakeCublasMatmul(StreamHandle stream, void* workspace, bool tf32);

}  // namespace hadal::cuda
