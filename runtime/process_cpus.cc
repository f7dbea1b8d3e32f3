#include "runtime/process_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/control_group.h"

namespace hadal {

int CpuShare(int cpus, int of_mask, std::optional<double> quota, int of_group) {
  double share = static_cast<double>(cpus) / of_mask;
  if (quota) share = std::min(share, *quota / of_group);
  return std::max(1, static_cast<int>(share));
}

int ProcessCpus(int of_mask, int of_group) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  std::ifstream membership("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(membership), std::istreambuf_iterator<char>()};
  return CpuShare(CPU_COUNT(&set), of_mask, ControlGroupCpus(groups), of_group);
}

}  // namespace hadal
