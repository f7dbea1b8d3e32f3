// What one rank tells the doctor: what it knows about itself (runtime/rank_facts.h) and about the GPU that it would
// compute on.
//
// Ranks are compared field by field (doctor_gpu_findings.h).
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
  bool absent = false;    // none because no GPU, driver or CUDA build exists, so no GPU is idle
  cuda::CudaFacts device;
  int nccl = 0;  // its version; 0: none
  std::string why_no_nccl;
  std::string nccl_variables;  // NCCL's variables that are set: "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0"

  bool found() const { return asked && why_none.empty(); }
};

// `usable`: OK if the GPU could be opened, else the reason. Leaves the NCCL fields to the caller.
GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required);

// Text of a version number: CUDA's 13020 → "13.2", a library's 130002 → "13.0.2"; "-" for 0.
std::string CudaVersionText(int version);
std::string LibraryVersionText(int version);

struct DoctorFacts : RankFacts {
  GpuFacts gpu;
};

// Fills local_rank and ranks_on_host of all ranks by their hosts' names.
void PlaceOnHosts(std::vector<DoctorFacts>& ranks);

// As RankFacts's, with "gpu"; what cannot be read of it is left as it is in GpuFacts().
std::string DoctorFactsToJson(const DoctorFacts& facts);
absl::StatusOr<DoctorFacts> DoctorFactsFromJson(const std::string& json);

}  // namespace hadal
