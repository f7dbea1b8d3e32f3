#include "launch/elastic_job.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
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
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

using Hosts = std::vector<ElasticHost>;

constexpr char kSlurm[] = "slurm";
constexpr char kSshProbe[] = "ssh -o BatchMode=yes -o ConnectTimeout=5 {host} true";
constexpr char kSlurmProbe[] =
    "scontrol show node {host} | grep -Eq 'State=(ALLOCATED|MIXED|IDLE)[+ ]' && srun --overlap -w {host} -N1 -n1 true";
constexpr absl::Duration kProbeLimit = absl::Seconds(10);
constexpr double kFaster = 0.99;  // a step on more hosts / the present one, at most

std::string Names(const Hosts& hosts, const char* separator) {
  return absl::StrJoin(hosts, separator, [](std::string* out, const ElasticHost& host) { *out += host.name; });
}

absl::StatusOr<Hosts> SlurmHosts() {
  const char* const tasks = std::getenv("SLURM_TASKS_PER_NODE");  // "8(x4)"
  const std::string text = tasks == nullptr ? "" : tasks;
  int slots = 0;
  if (!absl::SimpleAtoi(text.substr(0, text.find('(')), &slots)) {
    return absl::InvalidArgumentError(absl::StrCat("SLURM_TASKS_PER_NODE=", text,
                                                   ": --elastic slurm needs a Slurm job with as many tasks on each "
                                                   "node; submit it with --ntasks-per-node"));
  }
  Hosts hosts;
  std::FILE* const names = popen("scontrol show hostnames \"$SLURM_JOB_NODELIST\"", "r");
  char line[256];
  while (names != nullptr && std::fgets(line, sizeof(line), names) != nullptr) {
    hosts.push_back({std::string(absl::StripAsciiWhitespace(line)), slots});
  }
  if (names != nullptr) pclose(names);
  return hosts;
}

absl::StatusOr<Hosts> ReadHosts(const std::string& path) {
  if (path == kSlurm) return SlurmHosts();
  constexpr int64_t kMostBytes = int64_t{1} << 24;
  HADAL_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMostBytes));
  Hosts hosts;
  int line = 0;
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++line;
    const std::vector<std::string> words =
        absl::StrSplit(raw.substr(0, raw.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    ElasticHost host{.name = words[0], .slots = 0};
    for (const std::string& word : words) {
      if (absl::StartsWith(word, "slots=") && !absl::SimpleAtoi(word.substr(6), &host.slots)) host.slots = 0;
    }
    const bool twice = std::ranges::find(hosts, host.name, &ElasticHost::name) != hosts.end();
    if (host.slots < 1 || twice) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ":", line, ": host ", host.name, twice ? " is named twice" : " needs slots=N, its number of ranks"));
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

// When a file was last written; the epoch: there is none.
absl::Time WrittenAt(const std::string& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  return error ? absl::Time() : absl::FromChrono(std::chrono::file_clock::to_sys(time));
}

// At most the last 64 MiB: the steps of one start are rarely more.
std::string Tail(const std::string& path) {
  constexpr int64_t kMostBytes = int64_t{1} << 26;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  file.seekg(std::max<int64_t>(0, file.tellg() - kMostBytes));
  return {std::istreambuf_iterator<char>(file), {}};
}

// The last event of a kind; null: none.
nlohmann::json LastEvent(absl::string_view text, const char* kind) {
  const size_t at = text.rfind(absl::StrCat(R"({"event":")", kind, R"(",)"));
  if (at == absl::string_view::npos) return nullptr;
  return nlohmann::json::parse(text.substr(at, text.find('\n', at) - at), nullptr, /*allow_exceptions=*/false);
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
  return PlanFor(hosts);
}

void ElasticJob::Probe(const Hosts& known) {
  since_round_.Restart();
  round_.emplace(Round{.deadline = Deadline(kProbeLimit)});
  absl::StatusOr<Hosts> hosts = ReadHosts(options_.hosts);
  round_->status = hosts.status();
  if (!hosts.ok()) return;
  char here[256] = "";
  gethostname(here, sizeof(here) - 1);
  std::string command = options_.probe;
  if (command.empty()) command = options_.hosts == kSlurm ? kSlurmProbe : kSshProbe;
  for (ElasticHost& host : *hosts) {
    std::optional<ChildProcess> probe;
    if (std::ranges::find(known, host) != known.end() || (host.name == here && options_.probe.empty())) {
      round_->answered.push_back(host);
    } else if (absl::StatusOr<ChildProcess> started = ChildProcess::Start(
                   {"sh", "-c", absl::StrReplaceAll(command, {{"{host}", host.name}})}, "/dev/null");
               started.ok()) {
      probe.emplace(*std::move(started));
    }
    round_->probes.emplace_back(std::move(host), std::move(probe));
  }
}

bool ElasticJob::RoundEnded() {
  bool ended = true;
  for (auto& [host, probe] : round_->probes) {
    const std::optional<ChildEnd> end = probe ? probe->Poll() : std::nullopt;
    if (probe && !end) ended = false;
    if (end && end->exit_code == 0) round_->answered.push_back(host);
    if (end) probe.reset();
  }
  if (!ended && !round_->deadline.Passed()) return false;
  Hosts in_order;
  for (const auto& [host, probe] : round_->probes) {
    if (std::ranges::find(round_->answered, host) != round_->answered.end()) in_order.push_back(host);
  }
  round_->answered = std::move(in_order);
  return true;
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
  if (!RoundEnded()) return Found::kNothingYet;
  const Round round = *std::move(round_);
  round_.reset();
  if (const absl::Status status = round.status.ok() ? PlanFor(round.answered) : round.status; !status.ok()) {
    log_ << "hadal supervise: too few hosts answer (" << Names(round.answered, " ") << "): " << status.message()
         << std::endl;
    return Found::kTooFew;
  }
  return last_.hosts == planned_.hosts ? Found::kSame : Found::kOther;
}

bool ElasticJob::MayGrow() {
  if (!round_ && absl::Seconds(since_round_.Seconds()) >= options_.grow_every) Probe(last_.hosts);
  if (!round_ || !RoundEnded()) return false;
  const Round round = *std::move(round_);
  round_.reset();
  const bool more = round.status.ok() && round.answered.size() > last_.hosts.size() && PlanFor(round.answered).ok();
  if (!more || planned_.layout.step_seconds > kFaster * last_.layout.step_seconds) return false;
  log_ << "hadal supervise: more hosts answer; saving, then going on with " << planned_.Describe() << std::endl;
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
  log_ << "hadal supervise: starting on " << last_.Describe() << std::endl;
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

std::optional<ElasticJob::Trained> ElasticJob::ReadTrained() const {
  const std::string path = JoinPath(run_directory_, kMetricsName);
  const absl::Time last_at = WrittenAt(path);
  if (last_at <= written_) return std::nullopt;
  std::string text = Tail(path);
  const nlohmann::json run = LastEvent(text, "run");
  if (!run.is_object()) return std::nullopt;
  text.erase(0, text.rfind(R"({"event":"run",)"));
  const nlohmann::json step = LastEvent(text, "step");
  Trained trained{.first_step = run.value("first_step", int64_t{1}), .first_at = last_at, .last_at = last_at};
  trained.last_step = step.is_object() ? step.value("step", int64_t{0}) : trained.first_step - 1;
  if (step.is_object()) trained.first_at -= absl::Seconds(step.value("elapsed_seconds", 0.0));
  trained.finished = LastEvent(text, "finish").is_object();
  return trained;
}

bool ElasticJob::LacksAnEnd() const {
  const std::optional<Trained> trained = ReadTrained();
  return trained && !trained->finished;
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
  if (const std::optional<Trained> trained = ReadTrained()) {
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
  const std::string path = JoinPath(run_directory_, kIncarnationsName);
  const bool begun = PathExists(JoinPath(run_directory_, kMetricsName));
  const FileDescriptor file(begun ? open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666)
                                  : -1);
  if (file.valid()) WriteAll(file, line.dump() + "\n", path).IgnoreError();
}

std::string ElasticJob::Place::Describe() const {
  return absl::StrCat(hosts.size(), " host(s) (", Names(hosts, " "), "), stages x replicas x chunks ", layout.stages,
                      " x ", layout.replicas, " x ", layout.chunks);
}

}  // namespace hadal
