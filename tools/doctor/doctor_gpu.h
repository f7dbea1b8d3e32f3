// DoctorFacts: what each rank reports to `hadal doctor` about its process (runtime/rank_facts.h) and the GPU that it
// would use.
//
// doctor_gpu_findings.h compares the facts of all ranks. Threads: pure, except for PlaceOnHosts, which modifies its
// argument.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_facts.h"
#include "runtime/rank_facts.h"

namespace hadal {

struct GpuFacts {
  bool asked = false;     // whether a GPU was requested (--device auto or cuda)
  bool required = false;  // --device cuda
  std::string why_none;   // why no GPU can be used; empty: one can
  bool absent = false;    // no GPU, driver or CUDA build; so no GPU is left idle
  cuda::CudaFacts device;
  int nccl = 0;  // its version; 0: none
  std::string why_no_nccl;
  std::string nccl_variables;  // NCCL's variables that are set: "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0"
  std::string nccl_refusal;    // why the environment forbids a run over NCCL; empty: it does not

  bool found() const { return asked && why_none.empty(); }
};

// Returns the GPU facts without the NCCL fields. `usable`: OK if the GPU could be opened, else the reason.
GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required);

// Text of a version number: CUDA's 13020 → "13.2", a library's 130002 → "13.0.2"; "-" for 0.
std::string CudaVersionText(int version);
std::string LibraryVersionText(int version);

struct DoctorFacts : RankFacts {
  GpuFacts gpu;
};

// The GPU's place in the cluster; parts of one GPU have the same.
std::string PlaceOfGpu(const DoctorFacts& facts);

// Computes local_rank and ranks_on_host of all ranks from their host names.
void PlaceOnHosts(std::vector<DoctorFacts>& ranks);

// The JSON of RankFacts with an additional "gpu" object. Fields that cannot be parsed keep their defaults.
std::string DoctorFactsToJson(const DoctorFacts& facts);
absl::StatusOr<DoctorFacts> DoctorFactsFromJson(const std::string& json);

}  // namespace hadal
