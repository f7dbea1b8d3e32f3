#include "runtime/rank_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/crc32c.h"
#include "runtime/machine.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Of the running program: ranks of one job must run one binary.
uint32_t BinaryCrc32c() {
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::vector<char> block(1 << 20);
  uint32_t crc = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    crc = Crc32c(block.data(), static_cast<size_t>(in.gcount()), crc);
  }
  return crc;
}

int64_t Limit(int resource) {
  struct rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(limit.rlim_cur);
}

int64_t SharedMemoryBytes() {
  struct statvfs found = {};
  if (statvfs("/dev/shm", &found) != 0) return -1;
  return static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_frsize);
}

// The first launcher variable for the rank that is set.
std::string EnvironmentRank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return absl::StrCat(name, "=", value);
  }
  return "";
}

}  // namespace

RankFacts GatherFacts(int rank, int threads) {
  return {.rank = rank,
          .host = HostName(),
          .cpus = AllowedCpus(),
          .online_cpus = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)),
          .threads = threads,
          .binary_crc32c = BinaryCrc32c(),
          .environment_rank = EnvironmentRank(),
          .open_files_limit = Limit(RLIMIT_NOFILE),
          .memory_limit_bytes = Limit(RLIMIT_AS),
          .available_bytes = AvailableHostMemoryBytes().value_or(-1),
          .shared_memory_bytes = SharedMemoryBytes()};
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::string CpuList(const std::vector<int>& cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    absl::StrAppend(&text, text.empty() ? "" : ",", cpus[i]);
    if (last > i) absl::StrAppend(&text, "-", cpus[last]);
    i = last + 1;
  }
  return text;
}

std::string DescribeRanks(const std::vector<int>& which, std::span<const std::string> hosts) {
  if (which.size() == hosts.size() && which.size() > 2) return absl::StrCat("all ", which.size(), " ranks");
  std::set<std::string> of_these;
  for (const int rank : which) of_these.insert(hosts[rank]);
  return absl::StrCat(which.size() == 1 ? "rank " : "ranks ", absl::StrJoin(which, ", "),
                      of_these.size() == 1 ? " (host " : " (hosts ", absl::StrJoin(of_these, ", "), ")");
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, rank, host, local_rank, ranks_on_host, cpus, online_cpus,
                                                threads, instruction_sets, binary_crc32c, environment_rank,
                                                open_files_limit, memory_limit_bytes, available_bytes,
                                                shared_memory_bytes)

std::string FactsToJson(const RankFacts& facts) {
  return nlohmann::json(facts).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<RankFacts> FactsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_object() && json.contains("rank")) return json.get<RankFacts>();
  return InternalError("a rank sent facts that cannot be read; start every rank with the same binary");
}

}  // namespace hadal
