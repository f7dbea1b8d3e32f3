// `hadal doctor`: is this set of ranks fit for a run? Before the job, in the same allocation and with the same launch
// line.
//
//   mpirun … hadal doctor [--run-dir DIR] [--device auto|cpu|cuda] [--threads N] [--message-mib 4] [--file-mib 16]
//   [--json]
// Prints the rank map (host, CPUs, threads, instruction set), what each rank measured (links to the next rank alone and
// all at once, matrix products, the file system of the run directory), its GPU where any rank has one (place, memory,
// versions, products and copies measured), and findings that name the rank and its host. GPUs: tested on an emulated
// one, not run on a GPU yet. Exit codes: 0 nothing bad (there may be warnings), 1 something is, 5 and 6 as training's.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"
#include "tools/doctor/doctor_findings.h"

namespace hadal {

struct DoctorReport {
  std::vector<RankFacts> ranks;
  std::vector<RankMeasurements> measured;  // [ranks]
  std::vector<Finding> findings;

  bool healthy() const;  // no finding is bad
};

// The same report on every rank. `gpu`: of options.device, or why there is none. Blocking: all ranks call it; a few
// seconds.
// Errors: those of the probes.
absl::StatusOr<DoctorReport> Examine(Communicator& communicator, const Stream& stream, const ProbeOptions& options,
                                     const GpuFacts& gpu);

std::string DoctorToText(const DoctorReport& report);
std::string DoctorToJson(const DoctorReport& report);

}  // namespace hadal
