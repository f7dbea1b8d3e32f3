#include "runtime/process_cpus.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "runtime/control_group.h"

namespace hadal {

int ProcessCpus(int of_mask, int of_group) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  int cpus = CPU_COUNT(&set) / of_mask;
  std::ifstream membership("/proc/self/cgroup");
  const std::string groups{std::istreambuf_iterator<char>(membership), std::istreambuf_iterator<char>()};
  if (const auto quota = ControlGroupCpus(groups)) cpus = std::min(cpus, static_cast<int>(*quota / of_group));
  return std::max(1, cpus);
}

}  // namespace hadal
