// The hosts of an elastic job (supervisor.h): which of them answer, which layout runs on those, and what each start of
// the job has cost.
//
//   HOSTS      a hostfile of Open MPI, a line a host: `h1 slots=8`; read again before each start. "slurm": the nodes of
//              this Slurm job, with its tasks per node
//   probe      a shell command for each host, all at once; a host answers if it ends with 0 within 10 seconds. If the
//              user gives none, localhost and a name equal to this host's up to the first dot answer unprobed
//   command    {ranks}, {nodes}, {hosts} and {hostfile} stand for the number of ranks, that of hosts, the names of the
//              hosts that answer, with commas, and a hostfile of them; the word {layout} for the planner's arguments
// Threads: one. Blocking: the planner, for some seconds with hundreds of ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launch/child_process.h"
#include "runtime/clock.h"

namespace hadal {

struct ElasticHost {
  std::string name;
  int slots = 0;  // ranks that it may run
  bool operator==(const ElasticHost&) const = default;
};

struct ElasticLayout {
  int stages = 1, replicas = 1, chunks = 1;
  double step_seconds = 0;             // as planned
  std::vector<std::string> arguments;  // of `hadal train`
};

struct ElasticOptions {
  std::string hosts, probe;                      // probe: with {host}; empty: ssh, or srun under "slurm"
  absl::Duration grow_every = absl::Minutes(1);  // between probes of the hosts that a job lacks; > 0
  // Returns the fastest layout for some hosts that keeps the job's bits. Called for all hosts first.
  std::function<absl::StatusOr<ElasticLayout>(const std::vector<ElasticHost>& hosts)> plan;
};

class ElasticJob {
 public:
  ElasticJob(const ElasticOptions& options, std::string run_directory, std::ostream& log)
      : options_(options), run_directory_(std::move(run_directory)), log_(log) {}

  // Plans the job for all of its hosts. Under "slurm" sets SLURM_OVERLAP in the environment.  Errors: the planner's;
  // InvalidArgument if `command` lacks {layout}, {ranks}, or both {hostfile} and {hosts}, if HOSTS names no host, or if
  // one has no slots=N or is named twice.
  absl::Status Prepare(const std::vector<std::string>& command);
  // Starts to probe the hosts that are not in `known`, which count as answers.
  void Probe(const std::vector<ElasticHost>& known = {});
  // What the probes have found: the hosts of the last start; other hosts, or the first; too few for any layout.
  enum class Found { kNothingYet, kSame, kOther, kTooFew };
  Found Poll();
  int64_t most_hosts() const { return most_hosts_; }  // of HOSTS when it was last probed
  // While the job runs: probes the hosts that it lacks, every grow_every. Returns whether with those that answer its
  // steps would be faster by a percent.
  bool MayGrow();

  // Returns the command of the next start, on the hosts that Poll found; writes the hostfile into `directory`.
  absl::StatusOr<std::vector<std::string>> Start(const std::vector<std::string>& command, const std::string& directory);
  // Must be called when the start has ended; appends its line to RUN/incarnations.jsonl (docs/metrics.md).
  void End(const std::string& why, bool crashed);

 private:
  struct Round {  // of probes
    absl::Status status;
    std::vector<ElasticHost> hosts, answered;         // answered: in their order, once the round has ended
    std::vector<std::optional<ChildProcess>> probes;  // [hosts] while they run
    Deadline deadline;
  };
  struct Place {
    std::vector<ElasticHost> hosts;
    ElasticLayout layout;
  };

  std::string ProbeOf(const ElasticHost& host) const;  // the command
  std::optional<Round> EndedRound();
  // Plans, unless the planner was last asked for the same hosts.
  absl::Status PlanFor(const std::vector<ElasticHost>& hosts);
  void Log(const char* what) const;

  const ElasticOptions& options_;
  const std::string run_directory_;
  std::ostream& log_;
  std::optional<Round> round_;
  Stopwatch since_round_;
  int64_t most_hosts_ = 0;
  Place planned_, last_;      // what the planner was last asked for; the last start's
  absl::Status plan_status_;  // the planner's answer
  absl::Time begun_, ended_;  // of the last start, of the last that trained
  absl::Time written_;        // when metrics.jsonl was last written before the last start
  int64_t last_step_ = 0;     // of the last start that trained
};

}  // namespace hadal
