#include "pipeline/checkpoint/checkpoint_leftovers.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

bool HasOnly(std::string_view characters, std::string_view text) {
  return !text.empty() && text.find_first_not_of(characters) == std::string_view::npos;
}

// Whether NewCheckpointAttempt makes such names.
bool IsAttempt(std::string_view text) {
  const std::vector<std::string> parts = absl::StrSplit(std::string(text), '-');
  return parts.size() == 3 && parts[2].size() == 8 &&
         std::all_of(parts.begin(), parts.end(),
                     [](const std::string& part) { return HasOnly("0123456789abcdef", part); });
}

// What is behind a checkpoint's name and `infix`; nothing in any other name.
std::optional<std::string> BehindStep(const std::string& name, std::string_view infix) {
  const size_t at = name.find(infix);
  if (at == std::string::npos || !ParseCheckpointName(name.substr(0, at))) return std::nullopt;
  return name.substr(at + infix.size());
}

bool IsTemporaryDirectory(const std::string& name) {
  const std::optional<std::string> suffix = BehindStep(name, kTemporary);
  if (suffix && IsAttempt(*suffix)) return true;
  const std::optional<std::string> removed = BehindStep(name, kRemoved);
  return removed && (removed->empty() || (removed->front() == '.' && IsAttempt(removed->substr(1))));
}

bool IsReplacedDirectory(const std::string& name) {
  const std::optional<std::string> suffix = BehindStep(name, kReplaced);
  return suffix && IsAttempt(*suffix);
}

// ReplaceFile puts a number behind the attempt where that name is taken.
bool IsTemporaryFile(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  const bool is_numbered = parts.size() == 3 && HasOnly("0123456789", parts[2]);
  return (parts.size() == 2 || is_numbered) && (parts[0] == "latest" || parts[0] == "best" || parts[0] == "attempt") &&
         IsAttempt(parts[1]);
}

bool IsDirectory(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// What somebody else has removed meanwhile is gone all the same.
absl::Status UnlessGone(const absl::Status& status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }

absl::Status RemoveDirectory(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string doomed = JoinPath(parent, absl::StrCat(name.substr(0, name.find('.')), kRemoved, ".", attempt));
  if (const absl::Status renamed = RenamePath(JoinPath(parent, name), doomed); !renamed.ok()) {
    return UnlessGone(renamed);
  }
  return RemoveTree(doomed);
}

absl::Status SettleReplaced(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string original = JoinPath(parent, name.substr(0, name.find(kReplaced)));
  if (PathExists(original)) return RemoveDirectory(parent, name, attempt);
  return UnlessGone(RenamePath(JoinPath(parent, name), original));
}

absl::Status Settle(const std::string& parent, const std::string& name, const std::string& attempt) {
  const std::string path = JoinPath(parent, name);
  if (!IsDirectory(path)) return IsTemporaryFile(name) ? RemoveTree(path) : absl::OkStatus();
  if (IsTemporaryDirectory(name)) return RemoveDirectory(parent, name, attempt);
  return IsReplacedDirectory(name) ? SettleReplaced(parent, name, attempt) : absl::OkStatus();
}

}  // namespace

absl::Status RemoveLeftovers(const std::string& run_directory, const std::string& attempt) {
  const std::string parent = CheckpointsDirectory(run_directory);
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(parent));
  absl::Status first_error;
  for (const std::string& name : names) first_error.Update(Settle(parent, name, attempt));
  return first_error;
}

}  // namespace hadal
