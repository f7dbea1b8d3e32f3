#include "tools/doctor/doctor_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/crc32c.h"
#include "runtime/host_name.h"

namespace hadal {
namespace {

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

// Checksum of the running program: all ranks of a job must run the same binary.
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

int64_t AvailableBytes() {
  std::ifstream in("/proc/meminfo");
  for (std::string line; std::getline(in, line);) {
    int64_t kibibytes = 0;
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() >= 2 && words[0] == "MemAvailable:" && absl::SimpleAtoi(words[1], &kibibytes)) {
      return kibibytes * 1024;
    }
  }
  return -1;
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
          .instruction_sets = AvailableInstructionSets(),
          .binary_crc32c = BinaryCrc32c(),
          .environment_rank = EnvironmentRank(),
          .open_files_limit = Limit(RLIMIT_NOFILE),
          .memory_limit_bytes = Limit(RLIMIT_AS),
          .available_bytes = AvailableBytes(),
          .shared_memory_bytes = SharedMemoryBytes()};
}

void PlaceOnHosts(std::vector<RankFacts>& ranks) {
  std::map<std::string, int> seen;
  for (RankFacts& facts : ranks) facts.local_rank = seen[facts.host]++;
  for (RankFacts& facts : ranks) facts.ranks_on_host = seen[facts.host];
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

std::string FactsToJson(const RankFacts& facts) {
  return nlohmann::json{{"rank", facts.rank},
                        {"host", facts.host},
                        {"cpus", facts.cpus},
                        {"online_cpus", facts.online_cpus},
                        {"threads", facts.threads},
                        {"instruction_sets", facts.instruction_sets},
                        {"binary_crc32c", facts.binary_crc32c},
                        {"environment_rank", facts.environment_rank},
                        {"open_files_limit", facts.open_files_limit},
                        {"memory_limit_bytes", facts.memory_limit_bytes},
                        {"available_bytes", facts.available_bytes},
                        {"shared_memory_bytes", facts.shared_memory_bytes},
                        {"gpu", nlohmann::json::parse(GpuFactsToJson(facts.gpu))}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

absl::StatusOr<RankFacts> FactsFromJson(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("rank")) {
    return absl::InternalError("a rank sent facts that cannot be read; start every rank with the same binary");
  }
  return RankFacts{.rank = json.value("rank", 0),
                   .host = json.value("host", ""),
                   .cpus = json.value("cpus", std::vector<int>()),
                   .online_cpus = json.value("online_cpus", 0),
                   .threads = json.value("threads", 1),
                   .instruction_sets = json.value("instruction_sets", InstructionSets{0}),
                   .binary_crc32c = json.value("binary_crc32c", uint32_t{0}),
                   .environment_rank = json.value("environment_rank", ""),
                   .open_files_limit = json.value("open_files_limit", int64_t{-1}),
                   .memory_limit_bytes = json.value("memory_limit_bytes", int64_t{-1}),
                   .available_bytes = json.value("available_bytes", int64_t{-1}),
                   .shared_memory_bytes = json.value("shared_memory_bytes", int64_t{-1}),
                   .gpu = GpuFactsFromJson(json.value("gpu", nlohmann::json()).dump())};
}

}  // namespace hadal
