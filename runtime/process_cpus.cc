#include "runtime/process_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/control_group.h"

namespace hadal {

int CpuShare(int cpus, int sharing_cpus, std::optional<double> quota, int sharing_quota) {
  double share = static_cast<double>(cpus) / sharing_cpus;
  if (quota) share = std::min(share, *quota / sharing_quota);
  return std::max(1, static_cast<int>(share));
}

int ProcessCpus(int sharing_cpus, int sharing_quota) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::ifstream membership("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(membership), std::istreambuf_iterator<char>()};
  return CpuShare(CPU_COUNT(&set), sharing_cpus, ControlGroupCpus(groups), sharing_quota);
}

}  // namespace hadal
