// `hadal doctor` checks whether a set of ranks is ready for a run. Run it before the job, in the same allocation and
// with the same launch command.
//
//   mpirun … hadal doctor [--run-dir DIR] [--device auto|cpu|cuda] [--threads N] [--message-mib 4] [--file-mib 16]
//   [--json]
// Prints the rank map (host, CPUs, threads, instruction set); each rank's measurements (link to the next rank alone and
// with all links busy, matrix products, the run directory's file system); GPUs if any rank has one (bus address,
// memory, versions, product and copy speed); NCCL between them if training would use it (doctor_gpu.h); and findings
// with the rank and its host. The GPU part is tested with an emulated GPU; it has not run on a real one yet.
// Exit codes: 0 no bad finding, 1 a bad finding, 5 a wait passed its deadline, 6 a peer is lost.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/doctor/doctor_findings.h"
#include "tools/doctor/doctor_gpu.h"

namespace hadal {

struct DoctorReport {
  std::vector<DoctorFacts> ranks;
  std::vector<RankMeasurements> measured;  // [ranks]
  std::vector<LinkMeasurements> links;     // [ranks]; empty: NCCL was not measured
  std::vector<Finding> findings;

  bool healthy() const;  // no finding is bad
};

// Returns the same report on every rank, without `links`. `gpu`: facts of options.device, or why there is none.
// Blocking: all ranks call it; takes a few seconds. If a rank seems slow, measures again, up to three times in all, and
// takes each rank's best values, because on a busy host any rank may be slow for a moment.
// Errors: those of the probes.
absl::StatusOr<DoctorReport> Examine(Communicator& communicator, const Stream& stream, const ProbeOptions& options,
                                     const GpuFacts& gpu);

// Measures the links between the ranks' GPUs, and sets report.links on every rank. Blocking: all ranks call it. Errors:
// those of LinkProbe::Run.
absl::Status ExamineLinks(Communicator& communicator, LinkProbe& probe, const ProbeOptions& options,
                          DoctorReport& report);

std::string DoctorToText(const DoctorReport& report);
std::string DoctorToJson(const DoctorReport& report);

}  // namespace hadal
