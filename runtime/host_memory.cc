#include "runtime/host_memory.h"

#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

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

// The group's folder below /sys/fs/cgroup (version 2), or empty.
std::string ControlGroupDirectory() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "";
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

std::optional<int64_t> BytesBelowLimit(std::string_view limit, std::string_view used) {
  const std::optional<int64_t> most = Number(limit);
  const std::optional<int64_t> now = Number(used);
  if (!most || !now) return std::nullopt;
  return std::max<int64_t>(0, *most - *now);
}

std::optional<int64_t> AvailableHostMemoryBytes() {
  std::optional<int64_t> available = MemInfoBytes(ReadSmallFile("/proc/meminfo"), "MemAvailable");
  const std::string group = ControlGroupDirectory();
  const std::optional<int64_t> below =
      BytesBelowLimit(ReadSmallFile(group + "/memory.max"), ReadSmallFile(group + "/memory.current"));
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
