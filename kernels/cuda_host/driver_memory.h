// Device memory that the driver and its libraries may use, beside hadal's own allocations (own_memory.h and the arena);
// for graphs also host memory.
// A run without a configured memory limit leaves these amounts free; `hadal plan --device cuda` prints them.
//
// Not measured: no GPU has run this. The numbers follow from the libraries' sources and documentation. A run reports if
// NCCL used more.
#pragma once

#include <cstdint>

namespace hadal::cuda {

struct DriverMemory {
  // Modules: kernels of cuBLASLt and hadal, and stacks of kernels that spill. CUDA loads each kernel at its first
  // launch (CUDA_MODULE_LOADING=LAZY, the default since 12.2).
  static constexpr int64_t kModuleBytes = int64_t{1} << 30;
  // CUDA graphs of a rank. If they take more, recording stops when less than kModuleBytes is free.
  static constexpr int64_t kGraphBytes = int64_t{1} << 30;
  // Host memory of a graph's launch: the node and its arguments. An estimate; docs give no figure.
  static constexpr int64_t kGraphLaunchHostBytes = 2048;
  // NCCL's kernels, once per rank.
  static constexpr int64_t kNcclBytes = int64_t{256} << 20;
  // A connection is one direction between two ranks. It has four channels, each with a buffer of 4, 0.5 and 4.7 MiB for
  // NCCL's three protocols, allocated in pieces of 2 MiB, and their descriptions.
  static constexpr int64_t kNcclConnectionBytes = int64_t{48} << 20;

  static constexpr int64_t NcclBytes(int connections) {
    return connections > 0 ? kNcclBytes + connections * kNcclConnectionBytes : 0;
  }
  // The sum for a rank; connections = 0: without NCCL.
  static constexpr int64_t Bytes(bool graphs, int connections) {
    return kModuleBytes + (graphs ? kGraphBytes : 0) + NcclBytes(connections);
  }
};

}  // namespace hadal::cuda
