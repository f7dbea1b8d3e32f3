#include "runtime/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
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

struct MemoryGroup {
  const MemoryFiles* files = nullptr;
  std::string root, path;  // the group's directory is root + path; `root` is the topmost group
};

// Version 2 has one line, "0::/path"; version 1 has one per controller, "7:memory:/path".
std::optional<MemoryGroup> FindMemoryGroup(std::string_view membership, const std::string& mount) {
  std::optional<MemoryGroup> group;
  std::istringstream lines{std::string(membership)};
  for (std::string line; std::getline(lines, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end()) {
      return MemoryGroup{.files = &kVersion1, .root = mount + "/memory", .path = fields[2]};
    }
    if (fields[0] == "0" && fields[1].empty()) group = {.files = &kVersion2, .root = mount, .path = fields[2]};
  }
  return group;
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

}  // namespace

std::optional<int64_t> ControlGroupBytes(std::string_view membership, const std::string& mount) {
  const std::optional<MemoryGroup> group = FindMemoryGroup(membership, mount);
  if (!group) return std::nullopt;
  std::optional<int64_t> least;
  std::string path = group->path;
  while (true) {
    if (const auto left = BytesLeftIn(group->root + path, *group->files))
      least = std::min(least.value_or(*left), *left);
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace hadal
