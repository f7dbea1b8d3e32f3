// DoctorFacts: what each rank reports to `hadal doctor` about its process (runtime/rank_facts.h) and the GPU that it
// would use.
//
// doctor_findings.h compares the facts of all ranks. Threads: pure, except for PlaceOnHosts, which modifies its
// argument.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_facts.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/rank_facts.h"
#include "runtime/stream.h"
#include "tools/doctor/doctor_probe.h"

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

// Measures a GPU's product and copy speed, which should be equal on GPUs of one model.
//
//   product   C = A·Bᵀ, [n, n] in bf16, by the operation that training uses   2 n³ operations
//   copy      [n, n] in bf16 within its memory                                4 n² bytes, read and written
// n grows until a product takes a millisecond, so that launch time is negligible, up to 8,192 (three matrices: 384
// MiB).
// Why not a datasheet: ranks are only compared with each other; a GPU that is hot, throttled or shared is slower than
// the others. Not run on a GPU yet.

struct GpuRates {
  double flops = 0;  // per second
  double copy_bytes_per_second = 0;
};

// Returns n for this GPU. REQUIRES: a stream on a device. Blocking, some milliseconds. Errors: ResourceExhausted if
// even the smallest size does not fit.
absl::StatusOr<int64_t> ProductSize(const Stream& stream);

// REQUIRES: a stream on a device, n ≥ 1. Blocking, half a second.  Errors: ResourceExhausted.
absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n);

// Measures NCCL between the ranks' GPUs: connects every rank with every other (so all pairs of any layout, by the code
// that training uses), then sends messages between two at a time, both ways.
//
// Pairs that have no rank in common are measured at the same time, so links that share a network may slow each other.
// Run on an emulated NCCL only, not on a GPU yet.

// The measurements of one rank.
struct LinkMeasurements {
  double connect_seconds = 0;            // for all links, first messages included
  int64_t device_bytes = 0;              // that NCCL took for all links
  std::vector<double> bytes_per_second;  // [ranks]: to each rank; 0 to itself
};

// Whether training with these ranks would use NCCL: several ranks, each with its own GPU, the same NCCL, and an
// environment that permits it.
bool WouldUseNccl(const std::vector<DoctorFacts>& ranks);

class LinkProbe {
 public:
  // All must outlive the object.
  LinkProbe(NcclLibrary& library, Device& device, Communicator& control)
      : library_(library), device_(device), control_(control) {}
  // REQUIRES: Run has succeeded, or `control` is aborted.
  ~LinkProbe();
  LinkProbe(const LinkProbe&) = delete;
  LinkProbe& operator=(const LinkProbe&) = delete;

  // Call once. Blocking: all ranks call it; each wait takes at most options.timeout. Errors: those of
  // NcclCommunicator; `control` cannot be used afterwards. ResourceExhausted: no device memory for a message.
  absl::StatusOr<LinkMeasurements> Run(const ProbeOptions& options);

 private:
  absl::StatusOr<double> BytesPerSecond(int sender, int receiver, const ProbeOptions& options);

  NcclLibrary& library_;
  Device& device_;
  Communicator& control_;
  std::byte* message_ = nullptr;
  std::unique_ptr<NcclCommunicator> nccl_;
};

// A table: seconds, MiB and GB/s of each rank's links.
void AppendLinks(const std::vector<LinkMeasurements>& links, std::string& text);

}  // namespace hadal
