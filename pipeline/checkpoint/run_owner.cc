#include "pipeline/checkpoint/run_owner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "runtime/clock.h"
#include "runtime/machine.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxRecordBytes = 4096;
constexpr int kHeartbeatDigits = 10;
constexpr char kEnded[] = "ended";

std::string RecordPath(const std::string& run_directory) {
  return JoinPath(CheckpointsDirectory(run_directory), kAttemptName);
}

std::string ProcFile(const std::string& name) {
  std::ifstream file("/proc/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string PidNamespace() {
  std::error_code error;
  const std::string name_space = std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
  const std::string boot = ProcFile("sys/kernel/random/boot_id");
  return absl::StrCat(boot.substr(0, boot.find('\n')), " ", name_space);
}

struct ProcessLife {
  bool ended = true, stopped = false;
  int64_t start_ticks = -1;
};
// From words 3, 9, 22 and 31 of /proc/PID/stat. The name before them may contain anything but its last ')'.
ProcessLife LifeOf(int64_t pid) {
  const std::string stat = ProcFile(absl::StrCat(pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(stat.substr(name_end + 1));
  const std::vector<std::string> words{std::istream_iterator<std::string>(rest), {}};
  const auto number = [&words](size_t word) {
    int64_t value = 0;
    return word - 3 < words.size() && absl::SimpleAtoi(words[word - 3], &value) ? value : 0;
  };
  const char state = words.empty() ? 'X' : words[0][0];
  // The kernel may keep a process that has ended, e.g. in a driver; it runs no code of its own any more.
  constexpr int64_t kExiting = 4, kKilled = int64_t{1} << (SIGKILL - 1);
  const bool ended = state == 'Z' || state == 'X' || (number(9) & kExiting) != 0 || (number(31) & kKilled) != 0;
  return {.ended = ended, .stopped = state == 'T', .start_ticks = number(22)};
}

// In columns, so that later heartbeats overwrite it.
std::string HeartbeatText(std::string_view heartbeats) {
  return absl::StrFormat("%-*s\n", kHeartbeatDigits, std::string(heartbeats));
}

RunOwner ThisAttempt(const std::string& attempt) {
  return {.attempt = attempt,
          .host = HostName(),
          .pid_namespace = PidNamespace(),
          .pid = getpid(),
          .start_ticks = LifeOf(getpid()).start_ticks,
          .since = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()),
          .heartbeats = absl::StrFormat("%0*d", kHeartbeatDigits, 0)};
}

std::string RecordText(const RunOwner& owner) {
  return absl::StrCat(owner.attempt, "\n", owner.host, "\n", owner.pid_namespace, "\n", owner.pid, " ",
                      owner.start_ticks, "\n", owner.since, "\n", HeartbeatText(owner.heartbeats));
}

// A record that ends early belongs to an owner of which nothing but the attempt is known.
RunOwner ParseRecord(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  lines.resize(6);
  RunOwner owner{.attempt = lines[0], .host = lines[1], .pid_namespace = lines[2], .since = lines[4]};
  const std::vector<std::string> process = absl::StrSplit(lines[3], ' ');
  if (process.size() == 2 && absl::SimpleAtoi(process[0], &owner.pid)) {
    (void)absl::SimpleAtoi(process[1], &owner.start_ticks);
  }
  owner.heartbeats = lines[5].substr(0, lines[5].find(' '));
  return owner;
}

enum class Activity { kNone, kHere, kStoppedHere, kElsewhere };  // kElsewhere: not known

Activity ActivityOf(const RunOwner& owner) {
  if (owner.heartbeats == kEnded || owner.pid == 0) return Activity::kNone;
  if (owner.pid_namespace != PidNamespace()) return Activity::kElsewhere;
  // Where /proc hides other users' processes (hidepid), only the heartbeats show what an owner does.
  if (kill(static_cast<pid_t>(owner.pid), 0) != 0 && errno == EPERM &&
      ProcFile(absl::StrCat(owner.pid, "/stat")).empty())
    return Activity::kElsewhere;
  const ProcessLife life = LifeOf(owner.pid);
  if (life.ended || life.start_ticks != owner.start_ticks) return Activity::kNone;
  return life.stopped ? Activity::kStoppedHere : Activity::kHere;
}

absl::Status InUse(const std::string& run_directory, const RunOwner& owner, bool stopped) {
  return AbortedError(
      run_directory, " is in use by another attempt: ", owner.Describe(), stopped ? " (stopped by a signal)" : "",
      ". Wait until it has ended, stop it, or choose another --run-dir. To take the directory from it, give "
      "--take-over: it then ends before it writes again");
}

// Waits `silence` for a sign of an owner in another place. Returns OK if there is none.
absl::Status AwaitSilence(const std::string& run_directory, const RunOwner& owner, absl::Duration silence) {
  const Stopwatch watch;
  while (watch.Seconds() < absl::ToDoubleSeconds(silence)) {
    absl::SleepFor(std::min(silence / 20, absl::Seconds(1)));
    HADAL_ASSIGN_OR_RETURN(const std::optional<RunOwner> now, ReadOwner(run_directory));
    if (!now.has_value() || now->heartbeats == kEnded) return absl::OkStatus();
    if (now->attempt != owner.attempt || now->heartbeats != owner.heartbeats) {
      return InUse(run_directory, *now, /*stopped=*/false);
    }
  }
  return absl::OkStatus();
}

absl::Status Compare(const std::optional<RunOwner>& owner, const std::string& run_directory,
                     const std::string& attempt) {
  if (!owner.has_value()) {  // NotFound would read as a mistake of the user: exit code 2
    return InternalError(RecordPath(run_directory), ": is no longer there");
  }
  if (owner->attempt == attempt) return absl::OkStatus();
  return AbortedError("this attempt (", attempt, ") may no longer write into ", run_directory, ": a later one (",
                      owner->Describe(), ") has taken it over");
}

}  // namespace

std::string NewCheckpointAttempt() {
  std::random_device random;
  return absl::StrFormat("%x-%x-%08x", absl::ToUnixSeconds(absl::Now()), getpid(), random());
}

std::string RunOwner::Describe() const {
  if (pid == 0) return absl::StrCat("attempt ", attempt);
  return absl::StrCat("attempt ", attempt, ", process ", pid, " on ", host, ", since ", since);
}

absl::StatusOr<std::optional<RunOwner>> ReadOwner(const std::string& run_directory) {
  const absl::StatusOr<std::string> text = ReadFile(RecordPath(run_directory), kMaxRecordBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  HADAL_RETURN_IF_ERROR(text.status());
  return ParseRecord(*text);
}

absl::StatusOr<std::string> FindPredecessor(const std::string& run_directory, absl::Duration silence,
                                            const std::function<void(const std::string&)>& tell) {
  HADAL_ASSIGN_OR_RETURN(const std::optional<RunOwner> owner, ReadOwner(run_directory));
  if (!owner.has_value()) return "";
  const Activity activity = ActivityOf(*owner);
  if (activity == Activity::kHere || activity == Activity::kStoppedHere) {
    return InUse(run_directory, *owner, activity == Activity::kStoppedHere);
  }
  if (activity == Activity::kElsewhere) {
    tell(absl::StrCat("the last attempt in ", run_directory, " did not report its end (", owner->Describe(),
                      "); waiting ", absl::FormatDuration(silence), " for a sign of it"));
    HADAL_RETURN_IF_ERROR(AwaitSilence(run_directory, *owner, silence));
  }
  return owner->attempt;
}

absl::Status CheckOwner(const std::string& run_directory, const std::string& attempt) {
  HADAL_ASSIGN_OR_RETURN(const std::optional<RunOwner> owner, ReadOwner(run_directory));
  return Compare(owner, run_directory, attempt);
}

absl::Status CauseOf(const absl::Status& error, const std::string& run_directory, const std::string& attempt) {
  if (error.ok()) return error;
  const absl::Status owner = CheckOwner(run_directory, attempt);
  return absl::IsAborted(owner) ? owner : error;
}

absl::StatusOr<std::unique_ptr<RunOwnership>> RunOwnership::Claim(const Options& options) {
  const std::string directory = CheckpointsDirectory(options.run_directory), path = RecordPath(options.run_directory);
  if (options.predecessor.has_value()) {
    HADAL_ASSIGN_OR_RETURN(const std::optional<RunOwner> now, ReadOwner(options.run_directory));
    if (now.has_value() && now->attempt != *options.predecessor && ActivityOf(*now) != Activity::kNone) {
      return InUse(options.run_directory, *now, /*stopped=*/false);
    }
  }
  HADAL_RETURN_IF_ERROR(MakeDirectories(directory));
  HADAL_RETURN_IF_ERROR(SyncDirectory(options.run_directory));  // where `directory` may be new
  const std::string text = RecordText(ThisAttempt(options.attempt));
  const absl::Status replaced = ReplaceFile(path, text, options.attempt);
  // An attempt that claims meanwhile removes the file that was to be renamed.
  if (absl::IsNotFound(replaced)) return CauseOf(replaced, options.run_directory, options.attempt);
  HADAL_RETURN_IF_ERROR(replaced);
  FileDescriptor record(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!record.valid()) return ErrnoStatus(errno, "open", path);
  HADAL_RETURN_IF_ERROR(CheckOwner(options.run_directory, options.attempt));  // so `record` is this attempt's
  const auto heartbeats_at = static_cast<off_t>(text.size()) - (kHeartbeatDigits + 1);
  return std::unique_ptr<RunOwnership>(new RunOwnership(options, std::move(record), heartbeats_at));
}

RunOwnership::RunOwnership(const Options& options, FileDescriptor record, off_t heartbeats_at)
    : options_(options), record_(std::move(record)), heartbeats_at_(heartbeats_at), thread_([this] { Beat(); }) {}

RunOwnership::~RunOwnership() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  end_.notify_one();
  thread_.join();
  Write(HeartbeatText(kEnded));
}

void RunOwnership::Beat() {
  std::unique_lock lock(mutex_);
  int64_t beats = 0;
  while (!end_.wait_for(lock, absl::ToChronoMilliseconds(options_.heartbeat), [this] { return ending_; })) {
    char text[24];  // needs no memory allocation
    std::snprintf(text, sizeof text, "%0*lld", kHeartbeatDigits, static_cast<long long>(++beats));
    Write({text, kHeartbeatDigits});
  }
}

void RunOwnership::Write(std::string_view heartbeats) {
  // A heartbeat that cannot be written is only missing. Others see it only after a sync on some file systems.
  if (pwrite(record_.get(), heartbeats.data(), heartbeats.size(), heartbeats_at_) > 0) fdatasync(record_.get());
}

absl::Status RunOwnership::Check() const {
  HADAL_ASSIGN_OR_RETURN(const std::optional<RunOwner> owner, ReadOwner(options_.run_directory));
  struct stat record = {};
  const bool removed = fstat(record_.get(), &record) == 0 && record.st_nlink == 0;
  if (owner.has_value() || (!removed && PathExists(options_.run_directory))) {
    return Compare(owner, options_.run_directory, options_.attempt);
  }
  return AbortedError(options_.run_directory,
                      " was removed while this attempt wrote into it; nothing more can be saved. "
                      "Start again, in this or another --run-dir");
}

}  // namespace hadal
