// Facts about a GPU, which `hadal doctor` compares between ranks. 0 or empty: unknown.
#pragma once

#include <cstdint>
#include <string>

namespace hadal::cuda {

struct CudaFacts {
  std::string model;         // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  std::string bus;           // its address on the host's PCI bus, "0000:19:00.0"; parts of one GPU share it
  std::string identity;      // "GPU-1b4c…", unique in the cluster: Device::Identity (runtime/device.h)
  int64_t memory_bytes = 0;  // total device memory
  int64_t free_bytes = 0;    // free device memory
  int driver = 0;            // the newest CUDA that the driver supports: 13020 is 13.2
  int runtime = 0;           // the CUDA that the program was built with
  int cublas = 0;            // cuBLASLt: 130002 is 13.0.2; 0: it cannot be opened
};

}  // namespace hadal::cuda
