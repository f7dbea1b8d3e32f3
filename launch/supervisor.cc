#include "launch/supervisor.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launch/exit_code.h"
#include "launch/guardian.h"
#include "launch/job_report.h"
#include "launch/signals.h"
#include "launch/standard_streams.h"
#include "launch/supervisor_state.h"
#include "launch/time_limit.h"
#include "pipeline/checkpoint/run_owner.h"
#include "runtime/clock.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int64_t kMaxReportBytes = int64_t{1} << 26;

// Returns the value of `option` among the words of a command, in either spelling.
std::optional<std::string> OptionValue(const std::vector<std::string>& command, const std::string& option) {
  std::optional<std::string> value;
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i] == option && i + 1 < command.size()) value = command[i + 1];
    if (absl::StartsWith(command[i], option + "=")) value = command[i].substr(option.size() + 1);
  }
  return value;
}

std::string RunDirectoryOf(const std::vector<std::string>& command) {
  return OptionValue(command, "--run-dir").value_or("run");
}

// Then --resume CHECKPOINT has been applied, which acts once a job.
bool SlurmHasRequeued() {
  const char* const restarts = std::getenv("SLURM_RESTART_COUNT");
  return restarts != nullptr && std::atoi(restarts) > 0;
}

// A host is lost after 5 seconds of silence and 3 unanswered probes, 2 seconds apart: 11 seconds. Open MPI's defaults:
// eight minutes. Version 5 reads the variables of PRTE.
void SetKeepalive() {
  for (const char* const family : {"OMPI", "PRTE"}) {
    const std::string prefix = absl::StrCat(family, "_MCA_oob_tcp_keepalive_");
    setenv((prefix + "time").c_str(), "5", /*overwrite=*/0);
    setenv((prefix + "intvl").c_str(), "2", /*overwrite=*/0);
    setenv((prefix + "probes").c_str(), "3", /*overwrite=*/0);
  }
}

// The file of the job's reports, in a temporary directory. If it cannot be made, the job reports nothing.
class ReportFile {
 public:
  ReportFile() {
    std::error_code error;
    std::string name = (std::filesystem::temp_directory_path(error) / "hadal-supervise-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) return;
    directory_ = name;
  }
  ~ReportFile() {
    std::error_code error;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, error);
  }
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;

  const std::string& directory() const { return directory_; }  // "": none
  // Empties it, for the next start, and names it in the environment.
  void Clear() const {
    unsetenv(kReportVariable);
    if (directory_.empty()) return;
    std::ofstream(path(), std::ios::trunc).flush();
    setenv(kReportVariable, path().c_str(), /*overwrite=*/1);
  }
  JobReport Read() const { return ParseJobReport(ReadFile(path(), kMaxReportBytes).value_or("")); }

 private:
  std::string path() const { return JoinPath(directory_, "report"); }
  std::string directory_;  // empty: none
};

// Blocks the signals that are waited for, and ignores SIGPIPE: the reader of `log` may have ended.
class Signals {
 public:
  Signals() {
    sigemptyset(&waited_);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD}) sigaddset(&waited_, signal);
    struct sigaction hangup = {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&waited_, SIGHUP);  // else nohup: the job outlives its terminal
    sigprocmask(SIG_BLOCK, &waited_, nullptr);
    IgnoreClosedPipes();
  }

  // Waits at most `patience`. Returns the signal; -1: none.
  int Wait(absl::Duration patience) const {
    const timespec time = absl::ToTimespec(std::max(patience, absl::ZeroDuration()));
    return sigtimedwait(&waited_, nullptr, &time);
  }

 private:
  sigset_t waited_;
};

// One supervised command.
class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, std::ostream& log)
      : options_(options),
        log_(log),
        run_directory_(RunDirectoryOf(options.command)),
        furthest_(run_directory_,
                  !SlurmHasRequeued() && OptionValue(options.command, "--resume").value_or("auto") != "auto") {
    // The descendants of a guardian that was killed become children of this process.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (options.elastic) elastic_.emplace(*options.elastic, run_directory_, log);
  }

  absl::StatusOr<int> Run() {
    if (elastic_) HADAL_RETURN_IF_ERROR(elastic_->Prepare(options_.command));
    HADAL_RETURN_IF_ERROR(Act(SupervisorAction::kProbe));
    while (true) {
      const SupervisorStep step = Next(state_, NextEvent());
      state_ = step.state;
      if (state_ == SupervisorState::kEnded) return ReturnCode(step.action);
      HADAL_RETURN_IF_ERROR(Act(step.action));
    }
  }

 private:
  bool waiting() const { return state_ == SupervisorState::kBackOff; }

  RunOwner Owner() const { return ReadOwner(run_directory_).value_or(std::nullopt).value_or(RunOwner()); }

  absl::Status Start() {
    since_start_.Restart();
    std::vector<std::string> command = options_.command;
    if (elastic_) {
      if (crashed_) LogRestart("");
      HADAL_ASSIGN_OR_RETURN(command, elastic_->Start(command, report_.directory()));
    }
    report_.Clear();
    predecessor_ = Owner().attempt;
    HADAL_ASSIGN_OR_RETURN(
        guardian_,
        Guardian::Start({.command = command, .stopped_limit = options_.stopped_limit, .temporary = report_.directory()},
                        log_));
    return absl::OkStatus();
  }

  // Waits for a signal, the end of the job, the probes of hosts, or time.
  SupervisorEvent NextEvent() {
    while (true) {
      if (state_ == SupervisorState::kProbing && !elastic_) return AfterProbing(/*same_hosts=*/true);
      const int signal = signals_.Wait(
          waiting() ? std::min(back_off_ - absl::Seconds(since_end_.Seconds()), absl::Seconds(1)) : absl::Seconds(1));
      if (signal == SIGINT) return SupervisorEvent::kInterrupt;
      if (signal == SIGTERM || signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGHUP)
        return SupervisorEvent::kRequest;
      if (waiting() && absl::Seconds(since_end_.Seconds()) >= back_off_) {
        crashed_ = false;
        return SupervisorEvent::kWaited;
      }
      const std::optional<int> code = guardian_ ? guardian_->Poll() : std::nullopt;
      if (code.has_value()) return OnEnd(*code);
      if (const std::optional<SupervisorEvent> found = OnProbes()) return *found;
      if (signal != SIGCHLD) return SupervisorEvent::kSecond;
    }
  }

  // What is to be done with the hosts that the probes have found.
  std::optional<SupervisorEvent> OnProbes() {
    if (!elastic_) return std::nullopt;
    if (state_ == SupervisorState::kRunning && elastic_->MayGrow()) return SupervisorEvent::kHosts;
    if (state_ != SupervisorState::kProbing) return std::nullopt;
    const ElasticJob::Found found = elastic_->Poll();
    if (found == ElasticJob::Found::kNothingYet) return std::nullopt;
    if (found != ElasticJob::Found::kTooFew) {
      too_few_ = 0;
      return AfterProbing(found == ElasticJob::Found::kSame);
    }
    back_off_ = BackOff(++too_few_, std::max(options_.back_off, absl::Seconds(1)), absl::ZeroDuration());
    since_end_.Restart();
    return SupervisorEvent::kFew;
  }

  SupervisorEvent AfterProbing(bool same_hosts) {
    const bool moves = !same_hosts && moves_ < 2 * elastic_->most_hosts();
    if (moves) ++moves_, fruitless_ = 0;
    if (!crashed_ || moves) return SupervisorEvent::kHosts;
    return fruitless_ >= options_.tries ? SupervisorEvent::kLastCrash : SupervisorEvent::kCrash;
  }

  SupervisorEvent OnEnd(int code) {
    guardian_.reset();
    const JobReport report = report_.Read();
    const RunOwner owner = Owner();
    const bool claimed = owner.attempt != predecessor_;  // by a rank 0 that may be on another host
    const JobEnd end{.code = code,
                     .begun = report.start >= 0 || claimed,
                     .ended = report.ended || (claimed && owner.heartbeats == "ended"),
                     .saved = report.saved_at_end,
                     .failure = report.failure,
                     .elastic = elastic_.has_value(),
                     .begun_before = begun_before_,
                     .growing = state_ == SupervisorState::kGrowing};
    begun_before_ = begun_before_ || end.begun;
    code_ = EndCode(end);
    const SupervisorEvent event = EventOf(end);
    crashed_ = event == SupervisorEvent::kCrash;
    const bool saved = event == SupervisorEvent::kSaved;
    const std::string why = saved ? "saved" : crashed_ ? Crash() : absl::StrCat("exit code ", code_);
    if (elastic_) elastic_->End(why, crashed_);
    fruitless_ = furthest_.Advance(report) ? 0 : fruitless_ + 1;
    if (fruitless_ == 0) moves_ = 0;
    back_off_ = BackOff(fruitless_, options_.back_off, absl::Seconds(since_start_.Seconds()));
    since_end_.Restart();
    return event;
  }

  absl::Status Act(SupervisorAction action) {
    if (action == SupervisorAction::kAsk) guardian_->Send(GuardianOrder::kAsk);
    if (action == SupervisorAction::kTerm) guardian_->Send(GuardianOrder::kTerminate);
    if (action == SupervisorAction::kKill) guardian_->Send(GuardianOrder::kKill);
    if (action == SupervisorAction::kStart) return Start();
    if (action == SupervisorAction::kProbe && elastic_) elastic_->Probe();
    if (action != SupervisorAction::kWait) return absl::OkStatus();
    const std::string wait = absl::FormatDuration(absl::Ceil(back_off_, absl::Milliseconds(100)));
    if (too_few_ > 0) {
      if (crashed_ && too_few_ == 1) log_ << "hadal supervise: the job " << Crash() << std::endl;
      log_ << "hadal supervise: probing the hosts again in " << wait << std::endl;
    } else {
      LogRestart(back_off_ > absl::ZeroDuration() ? " in " + wait : "");
    }
    return absl::OkStatus();
  }

  void LogRestart(const std::string& when) {
    log_ << "hadal supervise: the job " << Crash() << "; starting it again from " << furthest_.Describe() << when
         << std::endl;
  }

  std::string Crash() const {
    return absl::StrCat(code_ == kExitDone ? "ended before its ranks reported an end" : "crashed", " (exit code ",
                        code_, ")");
  }

  int ReturnCode(SupervisorAction action) {
    if (action == SupervisorAction::kReturn85) {  // the last line, after the launcher's own about code 85
      log_ << "hadal supervise: the same command continues from " << furthest_.Describe() << std::endl;
      return kExitRequeue;
    }
    if (action == SupervisorAction::kReturnCode) return code_;
    log_ << "hadal supervise: the job " << Crash()
         << (fruitless_ >= options_.tries
                 ? absl::StrCat(", ", fruitless_, " time(s) in a row without a newer checkpoint")
                 : "")
         << std::endl;
    return code_ == kExitHang ? kExitHang : kExitPeerLost;
  }

  const SupervisorOptions& options_;
  std::ostream& log_;
  const Signals signals_;
  const ReportFile report_;
  const std::string run_directory_;
  FurthestStep furthest_;
  SupervisorState state_ = SupervisorState::kProbing;
  std::optional<ElasticJob> elastic_;
  std::optional<Guardian> guardian_;   // while a job runs
  std::string predecessor_;            // the run directory's last attempt before the last start
  bool crashed_ = false;               // the last start, and no wait has passed since
  int code_ = 0;                       // of the last start
  int fruitless_ = 0;                  // starts in a row, on the same hosts, without a newer checkpoint
  bool begun_before_ = false;          // rank 0, in some start
  int64_t moves_ = 0;                  // starts in a row on other hosts than before, without a newer checkpoint
  int too_few_ = 0;                    // probes in a row with too few hosts
  absl::Duration back_off_;            // the current wait
  Stopwatch since_start_, since_end_;  // of the last start
};

}  // namespace

absl::StatusOr<int> Supervise(const SupervisorOptions& options, std::ostream& log) {
  if (options.command.empty()) {
    return absl::InvalidArgumentError(
        "no command; for example: hadal supervise -- mpirun -n 2 hadal train run.textproto");
  }
  if (OptionValue(options.command, "--resume") == "never") {
    return InvalidArgumentError(
        "--resume never would start over after a crash wherever rank 0 does not see HADAL_JOB_START; leave it out and "
        "give a fresh --run-dir, or move ",
        CheckpointsDirectory(RunDirectoryOf(options.command)), " away");
  }
  SetKeepalive();
  MarkJobStart();
  RelayOutput();
  return Supervisor(options, log).Run();
}

}  // namespace hadal
