// What the driver and its libraries may take of a device for themselves, beside what hadal allocates (own_memory.h and the arena): allowances,
// which a run without a limit of its own leaves free and `hadal plan --device cuda` states.
//
// Not measured: nothing here has run on a GPU. They follow from what the libraries' sources and documents say of their buffers; a run says
// when NCCL took more.
#pragma once

#include <cstdint>

namespace hadal::cuda {

struct DriverMemory {
  // Modules, which CUDA loads by and by, each kernel when it is launched first (CUDA_MODULE_LOADING=LAZY, its default since 12.2): cuBLASLt's
  // kernels and our own; stacks of kernels that spill.
  static constexpr int64_t kModuleBytes = int64_t{1} << 30;
  // CUDA graphs of a rank. What they take more is not asked for: where less than kModuleBytes is free no more are recorded.
  static constexpr int64_t kGraphBytes = int64_t{1} << 30;
  // NCCL's kernels, once a rank.
  static constexpr int64_t kNcclBytes = int64_t{256} << 20;
  // A link (runtime/comm/nccl_link.h): for each of its four channels a buffer of each protocol, 4 + 0.5 + 4.7 MiB, in pieces of 2 MiB, and
  // what describes them.
  static constexpr int64_t kNcclLinkBytes = int64_t{48} << 20;

  static constexpr int64_t NcclBytes(int links) { return links > 0 ? kNcclBytes + links * kNcclLinkBytes : 0; }
  // All of it for a rank; links = 0: without NCCL.
  static constexpr int64_t Bytes(bool graphs, int links) {
    return kModuleBytes + (graphs ? kGraphBytes : 0) + NcclBytes(links);
  }
};

}  // namespace hadal::cuda
