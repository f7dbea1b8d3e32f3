#include "runtime/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "runtime/control_group.h"

namespace hadal {
namespace {

std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(absl::string_view(text.data(), text.size()), &value)) return std::nullopt;
  return value;
}

}  // namespace

std::optional<int64_t> MemInfoBytes(std::string_view text, std::string_view name) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.substr(0, name.size()) != name || line.substr(name.size(), 1) != ":") continue;
    const std::string_view value = line.substr(name.size() + 1);
    const size_t unit = value.find(" kB");
    const std::optional<int64_t> kibibytes = Number(value.substr(0, unit));
    if (unit == std::string_view::npos || !kibibytes) return std::nullopt;
    return *kibibytes * 1024;
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
