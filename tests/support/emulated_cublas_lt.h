// The functions that a program passes to the emulated cuBLASLt, a shared library that dlopen finds.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "tests/support/emulated_cublas_product.h"

namespace hadal::testing {

struct CublasLtPreference {
  uint64_t workspace_bytes = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};          // of A, B, C, D: the library's defaults
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;  // how parts of a sum may be added: by default in any way
};

struct CublasLtSurroundings {
  // Enqueues work on a stream of the emulated runtime.
  void (*enqueue)(cudaStream_t stream, std::function<void()> run) = nullptr;
  // Whether an address is in the device's memory.
  bool (*owns)(const void* memory, int64_t bytes) = nullptr;
  // Whether the library has algorithms with this epilogue (cublasLtEpilogue_t), whether they are of a different kind
  // than the others, and whether they split the sum over k.
  bool (*offers)(int epilogue) = nullptr;
  bool (*differs)(int epilogue) = nullptr;
  bool (*splits)(int epilogue) = nullptr;
  // The most products of a batch.
  int32_t (*most_together)() = nullptr;
  // Whether this thread records a graph. The search for an algorithm then fails, as was reported for cuBLASLt 13.3 on a
  // recording stream.
  bool (*records)() = nullptr;
};

// The name of a function void(const CublasLtSurroundings*), which must be called before all others.
inline constexpr char kConnectCublasLt[] = "HadalConnectCublasLt";

}  // namespace hadal::testing
