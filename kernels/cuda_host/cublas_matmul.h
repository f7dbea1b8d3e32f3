// Products by cuBLASLt. The library is opened with dlopen together with the first GPU, so that a program starts without
// CUDA's libraries.
//
// A plan (algorithm and descriptors) is made once per shape: cuBLASLt's first choice for shape, strides, alignment,
// epilogue and kMatmulWorkspaceBytes of workspace. It is a function of (shape, types, device, library). cuBLASLt also
// considers the alignment of the pointers to a bias and a mask; a plan is therefore requested with pointers aligned to
// exactly 16 bytes, not with those of the first caller.
// Epilogues: cuBLASLt's RELU_AUX_BIAS, DRELU, BGRADB and their parts, if it has an algorithm. It stores a bias and a
// bias's gradient in D's type. A bias's gradient is therefore computed with the weight's gradient, whose D is fp32
// (BGRADB, over dy; Transformer Engine does the same), not with dReLU's product (DRELU_BGRAD), whose D is bf16.
// Speed: from compute capability 9 on tensor cores have their own instructions. If kernels with these lack an epilogue,
// cuBLASLt uses the slower kernels of 8.x. Matmul::Offers then returns true for an epilogue with a mask or with a_sums
// (matmul.h) only if its algorithm has the same CUBLASLT_ALGO_CONFIG_ID as the product without epilogue. (cuBLASLt 13.0
// names kernels with DRELU and BGRADB in bf16 for 8.0 and 10.0, none for 9.0; not measured.) For every compute
// capability, Offers also returns false if the product alone would split its sum over k among several blocks and the
// epilogue's algorithm does not: a weight's gradient has few tiles and a long sum, and without the split most
// multiprocessors would idle.
// Several products in one launch (strided batches) use the algorithm of one alone, which cublasLtMatmulAlgoCheck must
// accept for their number and kMatmulWorkspaceBytes. Its tile and its split of the sum over k are then those of one,
// and with them the order of every sum. NVIDIA does not document that; linear_on_device_test would
// compare the bits on a GPU. cuBLASLt's first choice for one weight's gradient probably splits its long sum;
// for several gradients in one launch a split is not needed. With weight_gradient_batch = N > 1, all counts use the
// first choice for N, if that algorithm also supports a single product.
// Threads: one. After Make… succeeds, the library's errors abort with its message.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cuda/device_view.h"
#include "kernels/cuda_host/matmul.h"
#include "runtime/device.h"

namespace hadal::cuda {

inline constexpr int64_t kMatmulWorkspaceBytes = 32 << 20;

// `workspace`: kMatmulWorkspaceBytes on the current CUDA device, which products on other streams do not use. `major`:
// the first number of the device's compute capability. `tf32`: compute products of fp32 matrices in tf32. Errors:
// Unavailable if the library is not found.
absl::StatusOr<std::unique_ptr<Matmul>> MakeCublasMatmul(StreamHandle stream, void* workspace, int major, bool tf32,
                                                         int weight_gradient_batch);

}  // namespace hadal::cuda
