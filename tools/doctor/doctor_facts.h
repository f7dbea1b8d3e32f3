// What one rank knows about itself before a job: where it runs, with what, and what it may use.
//
// Gathered locally, without talking to a peer; travels as text (one line of JSON) to rank 0, where doctor_findings.h
// compares.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/instruction_set.h"
#include "tools/doctor/doctor_gpu.h"

namespace hadal {

// -1 or empty where it could not be found out.
struct RankFacts {
  int rank = 0;
  std::string host;
  int local_rank = 0;  // among the ranks of its host, in rank order
  int ranks_on_host = 1;
  std::vector<int> cpus;                 // that this process may run on
  int online_cpus = 0;                   // of the host
  int threads = 1;                       // that the rank will use
  InstructionSets instruction_sets = 0;  // that its kernels can use
  uint32_t binary_crc32c = 0;
  std::string environment_rank;  // what the launcher's variables say: "OMPI_COMM_WORLD_RANK=3"; empty: nothing set
  int64_t open_files_limit = -1;
  int64_t memory_limit_bytes = -1;   // RLIMIT_AS; -1: none
  int64_t available_bytes = -1;      // memory the host can still give
  int64_t shared_memory_bytes = -1;  // free in /dev/shm
  GpuFacts gpu;                      // left for whoever opens GPUs
};

// REQUIRES: Linux. Blocking: reads files of /proc and the program itself. Never fails: what is not known stays unknown.
// `local_rank` and `ranks_on_host` are left for whoever knows all ranks (PlaceOnHosts).
RankFacts GatherFacts(int rank, int threads);

// Fills local_rank and ranks_on_host of all ranks by their hosts' names.
void PlaceOnHosts(std::vector<RankFacts>& ranks);

// "0-3,8": as the kernel writes lists of CPUs.
std::string CpuList(const std::vector<int>& cpus);

std::string FactsToJson(const RankFacts& facts);
absl::StatusOr<RankFacts> FactsFromJson(const std::string& json);

}  // namespace hadal
