// Products by cuBLASLt, which is opened with dlopen when the first GPU is: a program needs no library of CUDA to start.
//
// A plan (algorithm and descriptors) is made once for each shape: cuBLASLt's first choice for the shape, strides, alignment, epilogue and
// kMatmulWorkspaceBytes of workspace, so a function of (shape, types, device, library). cuBLASLt also looks how the pointers of a bias and a
// mask lie: a plan is asked for with pointers that lie on 16 bytes and no more, not with those of whoever comes first.
// Everything of matmul.h rides on the product where cuBLASLt has an algorithm for it: epilogues RELU_AUX_BIAS, DRELU, BGRADB and what they
// are made of. Its types: a bias, or a bias's gradient, is stored as D is. So the gradient of a bias rides on the weight's, whose D is fp32
// (with BGRADB, over dy; as Transformer Engine accumulates), and not on dReLU's product (DRELU_BGRAD), whose D is bf16.
// Where that costs the product its speed nothing rides: from compute capability 9 on tensor cores have instructions of their own, and an
// epilogue that kernels with these lack is served by those of 8.x, which is slower. So there a mask or a sum is offered only where its algorithm is of the same kind (CUBLASLT_ALGO_CONFIG_ID) as that of the bare product.
// (cuBLASLt 13.0 names kernels with DRELU and BGRADB in bf16 for 8.0 and 10.0 and none for 9.0; not measured.)
// Threads: one. Errors of the library behind the start abort with its words.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "kernels/device/matmul.h"
#include "runtime/device.h"

namespace hadal::cuda {

inline constexpr int64_t kMatmulWorkspaceBytes = 32 << 20;

// `workspace`: kMatmulWorkspaceBytes of the current CUDA device, which no other stream's products use; `major`: of its compute capability.
// Errors: Unavailable where the library is not found.
absl::StatusOr<std::unique_ptr<Matmul>> MakeCublasMatmul(StreamHandle stream, void* workspace, int major, bool tf32);

}  // namespace hadal::cuda
