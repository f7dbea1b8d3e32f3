// For `hadal doctor`: the facts that each rank reports about its process (runtime/rank_facts.h) and the GPU that it
// would use (DoctorFacts), and measurements of a GPU (MeasureGpu) and of NCCL between the ranks' GPUs (LinkProbe).
//
// doctor_findings.h compares the facts and measurements of all ranks. Threads: only the device's thread may call what
// measures; the other functions are pure. Tested with an emulated device; it has not run on a real GPU yet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/cuda_device.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/rank_facts.h"
#include "runtime/stream.h"
#include "tools/doctor/doctor_probe.h"

namespace hadal {

struct GpuFacts {
  bool asked = false;     // whether a GPU was requested (--device auto or cuda)
  bool required = false;  // --device cuda
  std::string why_none;   // why no GPU can be used; empty: one can
  bool absent = false;    // why_none is that there is no driver
  cuda::CudaFacts device;
  int nccl = 0;                // version of the NCCL library; 0: none
  std::string why_no_nccl;     // why nccl is 0
  std::string nccl_variables;  // NCCL's variables that are set: "NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0"
  std::string nccl_refusal;    // why the environment forbids a run over NCCL; empty: it does not

  bool found() const { return asked && why_none.empty(); }
};

// Returns the GPU facts without the NCCL fields. `seen`: the result of LookAtCudaDevice. `usable`: OK if the GPU could
// be opened, else the reason. `required`: GpuFacts::required.
GpuFacts GatherGpuFacts(const absl::StatusOr<cuda::CudaFacts>& seen, const absl::Status& usable, bool required);

// Text of a version number: CUDA's 13020 → "13.2", a library's 130002 → "13.0.2"; "-" for 0.
std::string CudaVersionText(int version);
std::string LibraryVersionText(int version);

struct DoctorFacts : RankFacts {
  GpuFacts gpu;
};

// Identifies the physical GPU in the cluster: "HOST BUS-ADDRESS", or Device::Identity if the address is unknown. MIG
// instances of one GPU have the same place.
std::string PlaceOfGpu(const DoctorFacts& facts);

// Computes local_rank and ranks_on_host of all ranks from their host names.
void PlaceOnHosts(std::vector<DoctorFacts>& ranks);

// The JSON of RankFacts with an additional "gpu" object. Fields that cannot be parsed keep their defaults.
std::string DoctorFactsToJson(const DoctorFacts& facts);
absl::StatusOr<DoctorFacts> DoctorFactsFromJson(const std::string& json);

struct GpuRates {
  double flops = 0;  // per second
  double copy_bytes_per_second = 0;
};

// Returns the n for which this GPU takes a millisecond for a product of MeasureGpu, so that launch time is negligible;
// at most 8,192 (three matrices: 384 MiB), and at most what fits into its memory. REQUIRES: a stream on a device.
// Blocking, some milliseconds. Errors: ResourceExhausted if even the smallest size does not fit.
absl::StatusOr<int64_t> ProductSize(const Stream& stream);

// Measures a GPU's product and copy speed, which should be equal on all GPUs of one model.
//
//   product   C = A·Bᵀ, [n, n] in bf16, by the operation that training uses   2 n³ operations
//   copy      [n, n] in bf16 within its memory                                4 n² bytes, read and written
// The rates serve only to compare ranks: a GPU that is hot, throttled or shared is slower than the others.
// REQUIRES: a stream on a device, n ≥ 1. Blocking, half a second. Errors: ResourceExhausted.
absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n);

// One rank's measurements of NCCL's links to all other ranks.
struct LinkMeasurements {
  double connect_seconds = 0;            // to connect all links, the first message of each included
  int64_t device_bytes = 0;              // GPU memory that NCCL took for all links
  std::vector<double> bytes_per_second;  // [ranks]: to each rank; 0 to itself
};

// Whether training with these ranks would use NCCL: several ranks, each with its own GPU, the same NCCL, and an
// environment that permits it.
bool WouldUseNccl(const std::vector<DoctorFacts>& ranks);

// Measures NCCL between the ranks' GPUs, with the code that training uses: connects every rank with every other, then
// measures each pair, first one way, then the other.
//
// A rank measures one pair at a time; other pairs are measured meanwhile, so links that share a network may slow each
// other.
class LinkProbe {
 public:
  // `control`: of the same ranks. All must outlive the object.
  LinkProbe(NcclLibrary& library, Device& device, Communicator& control)
      : library_(library), device_(device), control_(control) {}
  // REQUIRES: Run has succeeded, or `control` is aborted.
  ~LinkProbe();
  LinkProbe(const LinkProbe&) = delete;
  LinkProbe& operator=(const LinkProbe&) = delete;

  // Must be called once. Blocking: all ranks call it; each wait takes at most options.timeout. Errors:
  // ResourceExhausted, no device memory for a message; those of NcclCommunicator, after which `control` cannot be used.
  absl::StatusOr<LinkMeasurements> Run(const ProbeOptions& options);

 private:
  absl::StatusOr<double> BytesPerSecond(int sender, int receiver, const ProbeOptions& options);

  NcclLibrary& library_;
  Device& device_;
  Communicator& control_;
  std::byte* message_ = nullptr;
  std::unique_ptr<NcclCommunicator> nccl_;
};

// Appends a table to `text`: seconds, MiB and GB/s of each rank's links.
void AppendLinks(const std::vector<LinkMeasurements>& links, std::string& text);

}  // namespace hadal
