// What the emulated cuBLASLt, a shared library of its own that dlopen finds, is given by the program that opens it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace hadal::testing {

struct CublasLtSurroundings {
  // Puts work into a stream of the emulated runtime.
  void (*enqueue)(cudaStream_t stream, std::function<void()> run) = nullptr;
  // Whether memory is its device's.
  bool (*owns)(const void* memory, int64_t bytes) = nullptr;
  // Whether it has algorithms with this epilogue (cublasLtEpilogue_t), whether they are of another kind than the
  // others, and whether they split the sum over k.
  bool (*offers)(int epilogue) = nullptr;
  bool (*differs)(int epilogue) = nullptr;
  bool (*splits)(int epilogue) = nullptr;
  // Whether this thread records a graph: no algorithm can be looked for then. cuBLASLt 13.3 has been reported to fail
  // so on a stream that records.
  bool (*records)() = nullptr;
};

// The name of a function void(const CublasLtSurroundings*), to be called before all others.
inline constexpr char kConnectCublasLt[] = "HadalConnectCublasLt";

}  // namespace hadal::testing
