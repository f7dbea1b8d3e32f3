#include "tools/output/rank_log.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "runtime/logged_environment.h"
#include "runtime/machine.h"
#include "runtime/rank_facts.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/output/append_whole.h"

namespace hadal {
namespace {

// This process's command line, approximately as typed.
std::string ProcessCommandLine() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankLog>> RankLog::Open(const std::string& directory, int rank) {
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  const std::string path = JoinPath(directory, RankLogName(rank));
  HADAL_ASSIGN_OR_RETURN(FileDescriptor file, OpenForAppending(path));
  HADAL_ASSIGN_OR_RETURN(const int64_t bytes, FileBytes(file, path));
  std::unique_ptr<RankLog> log(new RankLog(std::move(file), path));
  char last = '\n';
  if (bytes > 0 && pread(log->file_.get(), &last, 1, bytes - 1) == 1 && last != '\n') {
    log->trouble_ = AppendWhole(log->file_, "\n", path);  // a crash truncated the last line
  }
  return log;
}

void RankLog::Say(const std::string& text) {
  const std::string time = absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ ", absl::Now(), absl::UTCTimeZone());
  std::string lines;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    absl::StrAppend(&lines, time, Printable(line), "\n");
  }
  if (lines.empty()) return;
  const std::lock_guard lock(mutex_);
  trouble_.Update(AppendWhole(file_, lines, path_));
}

absl::Status RankLog::Flush() {
  const std::lock_guard lock(mutex_);
  return std::exchange(trouble_, absl::OkStatus());
}

int RankLogStream::overflow(int character) {
  using Traits = std::char_traits<char>;
  if (Traits::eq_int_type(character, Traits::eof())) return Traits::not_eof(character);
  pending_.push_back(Traits::to_char_type(character));
  SayLines();
  return character;
}

std::streamsize RankLogStream::xsputn(const char* characters, std::streamsize count) {
  pending_.append(characters, static_cast<size_t>(count));
  SayLines();
  return count;
}

void RankLogStream::SayLines() {
  const size_t end = pending_.rfind('\n');
  if (end == std::string::npos) return;
  log_.Say(pending_.substr(0, end));
  pending_.erase(0, end + 1);
}

std::string StartLines(const RankIdentity& identity, const char* const* environment) {
  std::error_code unknown;
  const std::string directory = std::filesystem::current_path(unknown).string();
  const std::string part = identity.stages == 0
                               ? ""
                               : absl::StrCat(" (stage ", identity.stage, " of ", identity.stages, ", replica ",
                                              identity.replica, " of ", identity.replicas, ")");
  std::string lines = absl::StrCat(
      "start: hadal ", identity.version, ", rank ", identity.rank, " of ", identity.ranks, part, " on ", HostName(),
      ", process ", getpid(), identity.attempt.empty() ? "" : absl::StrCat(", attempt ", identity.attempt), ", ",
      identity.threads, identity.threads == 1 ? " thread" : " threads", " on CPUs ", CpuList(AllowedCpus()),
      "\nstarted in ", directory, " as: ", ProcessCommandLine(), "\n");
  const std::string variables = absl::StrJoin(LoggedEnvironment(environment), " ");
  if (!variables.empty()) absl::StrAppend(&lines, "environment: ", variables, "\n");
  return lines;
}

}  // namespace hadal
