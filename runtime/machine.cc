#include "runtime/machine.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace hadal {
namespace {

// File names of one version of control groups.
struct MemoryFiles {
  const char* limit;
  const char* used;
  const char* idle_pages;  // a field of memory.stat
};
constexpr MemoryFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

struct ControlGroup {
  int version = 2;
  std::string root, path;  // the group's directory is root + path; `root` is the topmost group
};

// Version 2 has one line, "0::/path"; version 1 has one per controller, "7:memory:/path".
std::optional<ControlGroup> FindGroup(std::string_view membership, const std::string& controller,
                                      const std::string& mount) {
  std::optional<ControlGroup> group;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      return ControlGroup{.version = 1, .root = absl::StrCat(mount, "/", controller), .path = fields[2]};
    }
    if (fields[0] == "0" && fields[1].empty()) group = {.root = mount, .path = fields[2]};
  }
  return group;
}

// The least of limit(directory) of the group and of all groups above it; nullopt if none has one.
template <typename Limit>
auto Tightest(const ControlGroup& group, const Limit& limit) {
  decltype(limit("")) least;
  std::string path = group.path;
  while (true) {
    if (const auto here = limit(group.root + path)) least = std::min(least.value_or(*here), *here);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t value = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;  // "max" is not a number
  return value;
}

int64_t ReadStatistic(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  std::string key;
  for (int64_t value = 0; file >> key >> value;) {
    if (key == name) return value;
  }
  return 0;
}

std::optional<int64_t> BytesLeftIn(const std::string& folder, const MemoryFiles& files) {
  const std::optional<int64_t> limit = ReadNumber(folder + "/" + files.limit);
  const std::optional<int64_t> used = ReadNumber(folder + "/" + files.used);
  if (!limit || !used) return std::nullopt;
  const int64_t idle = ReadStatistic(folder + "/memory.stat", files.idle_pages);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - idle));
}

// Version 2: "max 100000" or quota and period in microseconds; version 1 has a file of each, and -1 for no quota.
std::optional<double> QuotaOf(const std::string& folder, int version) {
  std::optional<int64_t> quota, period;
  if (version == 1) {
    quota = ReadNumber(folder + "/cpu.cfs_quota_us"), period = ReadNumber(folder + "/cpu.cfs_period_us");
  } else {
    int64_t values[2];
    std::ifstream file(folder + "/cpu.max");
    if (file >> values[0] >> values[1]) quota = values[0], period = values[1];
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::optional<double> ControlGroupCpus(std::string_view membership, const std::string& mount) {
  const std::optional<ControlGroup> group = FindGroup(membership, "cpu", mount);
  if (!group) return std::nullopt;
  return Tightest(*group, [&](const std::string& folder) { return QuotaOf(folder, group->version); });
}

std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount) {
  const std::optional<ControlGroup> group = FindGroup(membership, "memory", mount);
  if (!group) return std::nullopt;
  const MemoryFiles& files = group->version == 1 ? kVersion1 : kVersion2;
  return Tightest(*group, [&](const std::string& folder) { return BytesLeftIn(folder, files); });
}

int CpuShare(int cpus, int sharing_cpus, std::optional<double> quota, int sharing_quota) {
  double share = static_cast<double>(cpus) / sharing_cpus;
  if (quota) share = std::min(share, *quota / sharing_quota);
  return std::max(1, static_cast<int>(share));
}

int ProcessCpus(int sharing_cpus, int sharing_quota) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return CpuShare(CPU_COUNT(&set), sharing_cpus, ControlGroupCpus(ReadSmallFile("/proc/self/cgroup")), sharing_quota);
}

std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name) {
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.empty() || words[0] != std::string(name) + ":") continue;
    int64_t kibibytes = 0;
    if (words.size() != 3 || words[2] != "kB" || !absl::SimpleAtoi(words[1], &kibibytes)) return std::nullopt;
    return kibibytes * 1024;
  }
  return std::nullopt;
}

std::optional<int64_t> AvailableHostMemoryBytes(const std::string& proc, const std::string& control_groups) {
  std::optional<int64_t> available = MemInfoBytes(ReadSmallFile(proc + "/meminfo"), "MemAvailable");
  const std::optional<int64_t> below = ControlGroupBytes(ReadSmallFile(proc + "/self/cgroup"), control_groups);
  if (below && (!available || *below < *available)) available = below;
  return available;
}

int64_t HeldBytes() {
  const std::string status = ReadSmallFile("/proc/self/status");
  return MemInfoBytes(status, "RssAnon").value_or(0) + MemInfoBytes(status, "RssShmem").value_or(0);
}

void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

int64_t PeakResidentBytes() {
  struct rusage usage = {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{1024} * usage.ru_maxrss : 0;
}

}  // namespace hadal
