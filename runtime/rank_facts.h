// Facts that a rank gathers about itself at the start of a job: where it runs, its binary, and its limits. The ranks
// send them to each other and compare them: a training run at its start (tools/train/rank_setup.h), `hadal doctor`
// before a job.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace hadal {

// An unknown number keeps its default; an unknown text or list is empty.
struct RankFacts {
  int rank = 0;
  std::string host;
  int local_rank = 0;  // among the ranks of its host, in rank order
  int ranks_on_host = 1;
  std::vector<int> cpus;         // on which this process may run
  int online_cpus = 0;           // of the host
  int threads = 1;               // that the rank is going to use
  int64_t instruction_sets = 0;  // bit set of those that its kernels can use (kernels/instruction_set.h)
  uint32_t binary_crc32c = 0;    // of the running program's file
  std::string environment_rank;  // the launcher's variable: "OMPI_COMM_WORLD_RANK=3"; empty: none set
  int64_t open_files_limit = -1;
  int64_t memory_limit_bytes = -1;   // RLIMIT_AS; -1: none, or not known
  int64_t available_bytes = -1;      // memory the host can still give (machine.h)
  int64_t shared_memory_bytes = -1;  // free in /dev/shm
  bool operator==(const RankFacts&) const = default;
};

// REQUIRES: Linux. Blocking: reads files of /proc and the program itself. Never fails: what is not known stays unknown.
// The caller fills local_rank, ranks_on_host and instruction_sets.
RankFacts GatherFacts(int rank, int threads);

// The CPUs that this process may run on.
std::vector<int> AllowedCpus();
// Returns for example "0-3,8", as the Linux kernel writes lists of CPUs. REQUIRES: ascending.
std::string CpuList(const std::vector<int>& cpus);

// "rank 3 (host n2)", "ranks 0, 1 (host n1)"; "all 64 ranks" if `which` has every rank and they are more than two.
// `hosts`: [rank], of all ranks.
std::string DescribeRanks(const std::vector<int>& which, std::span<const std::string> hosts);

// Returns one line. FactsFromJson reads it also from a rank of another version: it ignores unknown
// fields, and a missing field keeps its default.
std::string FactsToJson(const RankFacts& facts);
// Errors: Internal if `json` is not an object with a "rank".
absl::StatusOr<RankFacts> FactsFromJson(const std::string& json);

}  // namespace hadal
