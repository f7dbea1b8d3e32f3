// What one rank knows of the GPU that it would compute on: part of its facts (doctor_facts.h).
//
// Ranks are compared with each other, field by field (doctor_gpu_findings.h).
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_facts.h"

namespace hadal {

struct GpuFacts {
  bool asked = false;     // whether one was looked for (--device auto or cuda)
  bool required = false;  // --device cuda
  std::string why_none;   // empty: there is one
  bool absent = false;    // because there is no GPU, no driver, or no CUDA in this build: nothing stands idle
  cuda::CudaFacts device;
  int nccl = 0;  // its version; 0: none
  std::string why_no_nccl;
  std::string nccl_variables;  // that are set: "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0"

  bool found() const { return asked && why_none.empty(); }
};

// `usable`: whether the GPU could be opened, or why not. NCCL is left to the caller.
GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required);

// 13020 → "13.2", as CUDA counts; 130002 → "13.0.2", as its libraries do; "-" for 0.
std::string CudaVersionText(int version);
std::string LibraryVersionText(int version);

// One line; what cannot be read is left as it is in GpuFacts().
std::string GpuFactsToJson(const GpuFacts& facts);
GpuFacts GpuFactsFromJson(const std::string& json);

}  // namespace hadal
