// Measures NCCL between the ranks' GPUs: connects every rank with every other (so all pairs of any layout, by the code
// that training uses), then sends messages between two at a time, both ways.
//
// Pairs that have no rank in common are measured at the same time, so links that share a network may slow each other.
// Run on an emulated NCCL only, not on a GPU yet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/nccl_communicator.h"
#include "tools/doctor/doctor_gpu.h"
#include "tools/doctor/doctor_probe.h"

namespace hadal {

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
