#include "launch/elastic_job.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launch/job_report.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/machine.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Hosts = std::vector<ElasticHost>;

constexpr char kSlurm[] = "slurm";
constexpr char kSshProbe[] = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true";
constexpr char kSlurmProbe[] =
    "scontrol show node {host} | grep -Eq 'State=(ALLOCATED|MIXED|IDLE)[+ ]' && srun --overlap -w {host} -N1 -n1 true";
constexpr int kMostSlots = 1'000'000;
constexpr absl::Duration kProbeLimit = absl::Seconds(10);
constexpr double kFaster = 0.99;  // a step on more hosts / the present one, at most

std::string Names(const Hosts& hosts, const char* separator) {
  return absl::StrJoin(hosts, separator, [](std::string* out, const ElasticHost& host) { *out += host.name; });
}

bool IsHere(const std::string& host) {
  const std::string here = HostName();
  return host == "localhost" || absl::EqualsIgnoreCase(host.substr(0, host.find('.')), here.substr(0, here.find('.')));
}

// user@H1, h1 and h1.example are one host.
bool IsSame(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& name) { return absl::StrCat(name.substr(name.find('@') + 1), "."); };
  return absl::StartsWithIgnoreCase(key(a), key(b)) || absl::StartsWithIgnoreCase(key(b), key(a));
}

// The nodes of this Slurm job, as a hostfile. Of uneven tasks, "2(x3),1", slots= is no number.
std::string SlurmHosts() {
  std::FILE* const lines = popen(
      "for host in $(scontrol show hostnames \"$SLURM_JOB_NODELIST\"); do "
      "echo \"$host slots=${SLURM_TASKS_PER_NODE%(x*)}\"; done",
      "r");
  std::string text;
  char part[4096];
  while (lines != nullptr && std::fgets(part, sizeof(part), lines) != nullptr) text += part;
  if (lines != nullptr) pclose(lines);
  return text;
}

absl::StatusOr<Hosts> ReadHosts(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  const absl::StatusOr<std::string> text = path == kSlurm ? SlurmHosts() : ReadFile(path, kMostBytes);
  HADAL_RETURN_IF_ERROR(text.status());
  Hosts hosts;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    ElasticHost host{.name = words[0]};
    for (absl::string_view word : words) {
      if (absl::ConsumePrefix(&word, "slots=") && !absl::SimpleAtoi(word, &host.slots)) host.slots = 0;
    }
    const auto same = [&](const ElasticHost& other) { return IsSame(host.name, other.name); };
    const bool plain = std::ranges::all_of(host.name, absl::ascii_isgraph);  // no byte order mark
    if (!plain || host.slots < 1 || host.slots > kMostSlots || std::ranges::any_of(hosts, same)) {
      return InvalidArgumentError(path, ": \"", line, "\": each host is named once, with slots=N, ",
                                  path == kSlurm ? "as --ntasks-per-node gives it" : "its ranks",
                                  plain ? "" : "; its name is printable ASCII");
    }
    hosts.push_back(std::move(host));
  }
  if (!hosts.empty()) return hosts;
  return InvalidArgumentError("--elastic ", path,
                              path == kSlurm ? ": this is no Slurm job" : ": it names no host; add h1 slots=8");
}

// When a file was last written; the epoch: there is none.
absl::Time WrittenAt(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  return error ? absl::Time() : absl::FromChrono(std::chrono::file_clock::to_sys(time));
}

// The last event of a kind; null: none.
nlohmann::json LastEvent(absl::string_view text, const char* kind) {
  const size_t at = text.rfind(absl::StrCat(R"({"event":")", kind, R"(",)"));
  if (at == absl::string_view::npos) return nullptr;
  return nlohmann::json::parse(text.substr(at, text.find('\n', at) - at), nullptr, /*allow_exceptions=*/false);
}

struct Trained {
  int64_t first_step = 0, last_step = 0;
  absl::Time first_at, last_at;
};

// What RUN/metrics.jsonl says of its last start; nullopt if it was not written after `before`.
std::optional<Trained> ReadTrained(const std::string& run_directory, absl::Time before) {
  const absl::Time last_at = WrittenAt(JoinPath(run_directory, kMetricsName));
  const std::string text = MetricsOfLastStart(run_directory);
  const nlohmann::json run = LastEvent(text, "run");
  if (last_at <= before || !run.is_object()) return std::nullopt;
  const nlohmann::json step = LastEvent(text, "step");
  Trained trained{.first_step = run.value("first_step", int64_t{1}), .first_at = last_at, .last_at = last_at};
  trained.last_step = step.is_object() ? step.value("step", int64_t{0}) : trained.first_step - 1;
  if (step.is_object()) trained.first_at -= absl::Seconds(step.value("elapsed_seconds", 0.0));
  return trained;
}

}  // namespace

absl::Status ElasticJob::Prepare(const std::vector<std::string>& command) {
  const std::string text = absl::StrJoin(command, " ");
  const auto has = [&](const char* word) { return absl::StrContains(text, word); };
  if (!has("{ranks}") || !has("{layout}") || (!has("{hostfile}") && !has("{hosts}"))) {
    return absl::InvalidArgumentError(
        "--elastic: the command needs {ranks}, {hostfile} or {hosts}, and {layout}; for example: mpirun -np {ranks} "
        "--hostfile {hostfile} hadal train run.textproto {layout}");
  }
  HADAL_ASSIGN_OR_RETURN(const Hosts hosts, ReadHosts(options_.hosts));
  // For srun, also mpirun's: Slurm counts a step as running on a node that has started anew since.
  if (options_.hosts == kSlurm) setenv("SLURM_OVERLAP", "1", /*overwrite=*/1);
  return PlanFor(hosts);
}

std::string ElasticJob::ProbeOf(const ElasticHost& host) const {
  const std::string usual = options_.hosts == kSlurm ? kSlurmProbe : kSshProbe;
  return absl::StrReplaceAll(options_.probe.empty() ? usual : options_.probe, {{"{host}", host.name}});
}

void ElasticJob::Probe(const Hosts& known) {
  since_round_.Restart();
  absl::StatusOr<Hosts> hosts = ReadHosts(options_.hosts);
  round_.emplace(Round{.status = hosts.status(), .deadline = Deadline(kProbeLimit)});
  if (hosts.ok()) round_->hosts = *std::move(hosts);
  most_hosts_ = std::ssize(round_->hosts);
  for (const ElasticHost& host : round_->hosts) {
    round_->probes.emplace_back();
    if (std::ranges::find(known, host) != known.end() || (options_.probe.empty() && IsHere(host.name))) {
      round_->answered.push_back(host);
    } else if (auto started = ChildProcess::Start({"sh", "-c", ProbeOf(host)}); started.ok()) {
      round_->probes.back().emplace(*std::move(started));
    }
  }
}

std::optional<ElasticJob::Round> ElasticJob::EndedRound() {
  bool ended = true;
  for (size_t i = 0; i < round_->probes.size(); ++i) {
    std::optional<ChildProcess>& probe = round_->probes[i];
    const std::optional<int> end = probe ? probe->Poll() : std::nullopt;
    if (end == 0) round_->answered.push_back(round_->hosts[i]);
    if (end) probe.reset();
    ended = ended && !probe;
  }
  if (!ended && !round_->deadline.Passed()) return std::nullopt;
  std::optional<Round> round = std::exchange(round_, std::nullopt);
  std::ranges::sort(round->answered, {},
                    [&](const ElasticHost& host) { return std::ranges::find(round->hosts, host); });
  return round;
}

absl::Status ElasticJob::PlanFor(const Hosts& hosts) {
  if (hosts == planned_.hosts && !hosts.empty()) return plan_status_;
  planned_.hosts = hosts;
  absl::StatusOr<ElasticLayout> layout = hosts.empty() ? absl::UnavailableError("no host") : options_.plan(hosts);
  plan_status_ = layout.status();
  if (layout.ok()) planned_.layout = *std::move(layout);
  return plan_status_;
}

ElasticJob::Found ElasticJob::Poll() {
  const std::optional<Round> round = EndedRound();
  if (!round) return Found::kNothingYet;
  if (const absl::Status status = round->status.ok() ? PlanFor(round->answered) : round->status; !status.ok()) {
    log_ << "hadal supervise: too few hosts answer (" << Names(round->answered, " ") << "): " << status.message();
    const auto [silent, _] = std::ranges::mismatch(round->hosts, round->answered);
    if (silent != round->hosts.end()) log_ << "\n  to see why not " << silent->name << ": " << ProbeOf(*silent);
    log_ << std::endl;
    return Found::kTooFew;
  }
  return last_.hosts == planned_.hosts ? Found::kSame : Found::kOther;
}

bool ElasticJob::MayGrow() {
  if (!round_ && absl::Seconds(since_round_.Seconds()) >= options_.grow_every) Probe(last_.hosts);
  const std::optional<Round> round = round_ ? EndedRound() : std::nullopt;
  if (!round || round->answered.size() <= last_.hosts.size() || !PlanFor(round->answered).ok()) return false;
  if (planned_.layout.step_seconds > kFaster * last_.layout.step_seconds) return false;
  Log("more hosts answer; saving, then continuing on ");
  return true;
}

absl::StatusOr<std::vector<std::string>> ElasticJob::Start(const std::vector<std::string>& command,
                                                           const std::string& directory) {
  const std::string hostfile = JoinPath(directory, "hostfile");
  std::ofstream file(hostfile, std::ios::trunc);
  for (const ElasticHost& host : planned_.hosts) file << host.name << " slots=" << host.slots << "\n";
  file.close();
  if (directory.empty() || !file) return absl::InternalError("the hostfile cannot be written; set TMPDIR");
  last_ = planned_;
  begun_ = absl::Now();
  written_ = WrittenAt(JoinPath(run_directory_, kMetricsName));
  Log("starting on ");
  const ElasticLayout& layout = last_.layout;
  std::vector<std::string> words;
  for (const std::string& word : command) {
    if (word == "{layout}") words.insert(words.end(), layout.arguments.begin(), layout.arguments.end());
    if (word == "{layout}") continue;
    words.push_back(absl::StrReplaceAll(word, {{"{ranks}", absl::StrCat(layout.stages * layout.replicas)},
                                               {"{nodes}", absl::StrCat(last_.hosts.size())},
                                               {"{hosts}", Names(last_.hosts, ",")},
                                               {"{hostfile}", hostfile}}));
  }
  return words;
}

void ElasticJob::End(const std::string& why, bool crashed) {
  const auto seconds = [](absl::Duration time) { return std::max(0.0, absl::ToDoubleSeconds(time)); };
  const absl::Time now = absl::Now();
  nlohmann::ordered_json line = {{"start", absl::FormatTime(absl::RFC3339_sec, begun_, absl::UTCTimeZone())},
                                 {"hosts", nlohmann::ordered_json::array()},
                                 {"stages", last_.layout.stages},
                                 {"replicas", last_.layout.replicas},
                                 {"chunks", last_.layout.chunks}};
  for (const ElasticHost& host : last_.hosts) line["hosts"].push_back({{"name", host.name}, {"slots", host.slots}});
  if (const std::optional<Trained> trained = ReadTrained(run_directory_, written_)) {
    line["first_step"] = trained->first_step;
    line["last_step"] = trained->last_step;
    line["saved_step"] = ReadCheckpointPointer(run_directory_, CheckpointPointer::kLatest).value_or(0);
    line["repeated_steps"] = std::max<int64_t>(0, last_step_ - trained->first_step + 1);
    if (last_step_ > 0) line["restart_seconds"] = seconds(trained->first_at - ended_);
    if (crashed) line["detection_seconds"] = seconds(now - trained->last_at);
    last_step_ = trained->last_step;
    ended_ = now;
  }
  line["end"] = why;
  // A run that has not begun has no directory, and gets none.
  if (!PathExists(JoinPath(run_directory_, kMetricsName))) return;
  const std::string path = JoinPath(run_directory_, kIncarnationsName);
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666));
  const std::string text = line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file.valid()) WriteAll(file, text, path).IgnoreError();
}

void ElasticJob::Log(const char* what) const {
  log_ << "hadal supervise: " << what << planned_.hosts.size() << " host(s) (" << Names(planned_.hosts, " ")
       << "), stages x replicas x chunks " << planned_.layout.stages << " x " << planned_.layout.replicas << " x "
       << planned_.layout.chunks << std::endl;
}

}  // namespace hadal
