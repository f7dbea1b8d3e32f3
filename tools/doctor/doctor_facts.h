// The facts of one rank before a job: its host, its CPUs and its limits.
//
// Gathered locally without communication and sent to rank 0 as one line of JSON; doctor_findings.h compares them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "tools/doctor/doctor_gpu.h"

namespace hadal {

// Unknown numbers are -1, unknown texts empty.
struct RankFacts {
  int rank = 0;
  std::string host;
  int local_rank = 0;  // among the ranks of its host, in rank order
  int ranks_on_host = 1;
  std::vector<int> cpus;                 // available to this process
  int online_cpus = 0;                   // of the host
  int threads = 1;                       // that the rank will use
  InstructionSets instruction_sets = 0;  // that its kernels can use
  uint32_t binary_crc32c = 0;
  std::string environment_rank;  // from the launcher's variables: "OMPI_COMM_WORLD_RANK=3"; empty: none set
  int64_t open_files_limit = -1;
  int64_t memory_limit_bytes = -1;   // RLIMIT_AS; -1: none
  int64_t available_bytes = -1;      // free memory of the host
  int64_t shared_memory_bytes = -1;  // free in /dev/shm
  GpuFacts gpu;                      // set by the caller, if it opens GPUs
};

// REQUIRES: Linux. Blocking: reads files in /proc and the program itself. Never fails; unknown values keep their
// defaults. Does not set `local_rank` and `ranks_on_host` (PlaceOnHosts does, from all ranks' facts).
RankFacts GatherFacts(int rank, int threads);

// Sets local_rank and ranks_on_host of all ranks from their host names.
void PlaceOnHosts(std::vector<RankFacts>& ranks);

// A list of CPUs in the kernel's format: "0-3,8".
std::string CpuList(const std::vector<int>& cpus);

std::string FactsToJson(const RankFacts& facts);
absl::StatusOr<RankFacts> FactsFromJson(const std::string& json);

}  // namespace hadal
