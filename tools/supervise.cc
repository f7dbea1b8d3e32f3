// `hadal supervise [options] -- COMMAND…`: runs `mpirun … hadal train …` so that Ctrl-C saves, crashes restart and
// nothing is left behind (launch/supervisor.h).
//
//   hadal supervise --elastic HOSTS [--probe COMMAND] [--grow-every 1m] -- mpirun -np {ranks} --hostfile {hostfile} …
//       hadal train CONFIG… {layout}
// goes on without hosts that are lost, and with those that return (launch/elastic_job.h), in the fastest layout over
// stages, replicas and chunks that keeps the job's bits. Fixed between starts: the micro-batches, and batch.sum_groups:
// the config's, else that of the checkpoint to resume from, else the replicas of the fastest layout on all hosts among
// powers of two, so that one replica is legal, too. Speeds are those of --machine and --profile of the `hadal train`;
// without them hosts are taken for equal CPUs with this host's memory.
#include "tools/commands.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "launch/exit_code.h"
#include "launch/supervisor.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/run_options.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_search.h"
#include "tools/tool_exit_code.h"
#include "tools/train/resume.h"
#include "tools/train/training_sinks.h"

namespace hadal {
namespace {

// The layout depends on the ratios. Our assumption: 50 Gflop/s a rank, 10 GB/s of memory, 1 GB/s of network.
Machine EqualCpus() {
  return {.name = "equal CPUs",
          .memory_bytes = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE),
          .peak_flops = 5e10,
          .matmul_flops = 5e10,
          .attention_flops = 1e10,
          .memory_bytes_per_second = 1e10,
          .call_seconds = 1e-5,
          .intra_node = {.bytes_per_second = 5e9, .latency_seconds = 5e-6},
          .inter_node = {.bytes_per_second = 1e9, .latency_seconds = 5e-5},
          .overlap = false};
}

struct ElasticRun {
  TrainOptions options;
  KeptFields kept;
  LoadedCosts costs;
};

// The run of the words behind "train" in `command`.
absl::StatusOr<ElasticRun> ReadElasticRun(const std::vector<std::string>& command) {
  std::vector<std::string> words(std::ranges::find(command, "train"), command.end());
  std::erase(words, "{layout}");
  const auto arguments = std::make_shared<TrainArguments>();
  CommandLine line("hadal", "");
  AddTrainArguments(line.program(), arguments).Runs([] {});
  if (words.empty() || line.Run(words) != CommandLine::Outcome::kRan) {
    return InvalidArgumentError(
        "--elastic: the command has no `hadal train CONFIG… {layout}`, whose config decides the layout");
  }
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config,
                         LoadConfig(arguments->config.files, arguments->config.overrides));
  HADAL_ASSIGN_OR_RETURN(RunOptions options, MakeRunOptions(config));
  const config::Pipeline& pipeline = config.pipeline();
  ElasticRun run{.options = std::move(options.train),
                 .kept = {.schedule = pipeline.has_schedule(),
                          .recompute_every = pipeline.has_recompute_every(),
                          .optimizer_sharding = pipeline.has_optimizer_sharding(),
                          .batch = true}};
  HADAL_RETURN_IF_ERROR(FollowPreparedCorpus(run.options));
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(run.options.model));
  HADAL_ASSIGN_OR_RETURN(run.costs, LoadCosts(arguments->costs));
  if (!run.costs.machine && arguments->device.kind == "cuda") {
    return InvalidArgumentError(
        "--elastic on GPUs plans for a described machine: give `hadal train` --machine FILE (configs/machines)");
  }
  int32_t& groups = run.options.batch.sum_groups;
  const std::optional<int32_t> before =
      SumGroupsBefore(arguments->run_directory, arguments->resume, run.options.checkpoint.memory_every_steps > 0);
  if (groups == 0 && before == 0) {
    return InvalidArgumentError(arguments->run_directory,
                                ": its newest checkpoint is of an older hadal that added replicas in another order. "
                                "Resume it once with --set batch.sum_groups=G --accept-changes, then with --elastic");
  }
  if (groups == 0) groups = before.value_or(0);
  return run;
}

// The fastest layout of a run. The first call must be for all hosts.  REQUIRES: hosts not empty.
absl::StatusOr<ElasticLayout> PlanElastic(ElasticRun& run, const std::vector<ElasticHost>& hosts) {
  Machine machine = run.costs.machine.value_or(EqualCpus());
  machine.devices_per_node = std::ranges::max(hosts, {}, &ElasticHost::slots).slots;
  if (!run.costs.machine) machine.memory_bytes /= machine.devices_per_node;
  run.kept.most_ranks = 0;
  for (const ElasticHost& host : hosts) run.kept.most_ranks += host.slots;
  machine.nodes = (run.kept.most_ranks + machine.devices_per_node - 1) / machine.devices_per_node;
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<StepCosts> costs,
                         LoadedCosts({run.costs.profile, machine}).For(run.options.model));
  const int threads = std::max(1, run.options.pipeline.threads);
  HADAL_ASSIGN_OR_RETURN(const LayoutSearch search,
                         SearchLayouts(run.options, machine, *costs, threads, {.top = 1, .kept = run.kept}));
  const LayoutPrediction& best = *search.best.front().prediction;
  int32_t& groups = run.options.batch.sum_groups;
  if (groups == 0) groups = best.pipeline.replicas;
  return ElasticLayout{
      .stages = best.pipeline.stages,
      .replicas = best.pipeline.replicas,
      .chunks = best.pipeline.chunks,
      .step_seconds = best.step_seconds,
      .arguments =
          absl::StrSplit(absl::StrCat(LayoutArguments(search.best.front()), " --set batch.sum_groups=", groups), ' ')};
}

struct SuperviseArguments {
  SupervisorOptions options;
  std::string back_off = "1s", stopped_limit = "10m", grow_every = "1m";
  ElasticOptions elastic;  // hosts: empty without --elastic
};

absl::Status ParseWait(const char* name, const std::string& text, absl::Duration least, absl::Duration& wait) {
  if (absl::ParseDuration(text, &wait) && wait >= least) return absl::OkStatus();
  return InvalidArgumentError(name, " \"", text, "\" is no duration of at least ", absl::FormatDuration(least),
                              "; write for example 90s or 10m");
}

absl::StatusOr<int> RunSupervise(SuperviseArguments& arguments) {
  SupervisorOptions& options = arguments.options;
  ElasticOptions& elastic = arguments.elastic;
  const absl::Duration least = absl::Milliseconds(100);
  HADAL_RETURN_IF_ERROR(ParseWait("--back-off", arguments.back_off, absl::ZeroDuration(), options.back_off));
  HADAL_RETURN_IF_ERROR(ParseWait("--stopped-limit", arguments.stopped_limit, least, options.stopped_limit));
  HADAL_RETURN_IF_ERROR(ParseWait("--grow-every", arguments.grow_every, least, elastic.grow_every));
  if (!elastic.hosts.empty()) {
    HADAL_ASSIGN_OR_RETURN(ElasticRun run, ReadElasticRun(options.command));
    elastic.plan = [run = std::make_shared<ElasticRun>(std::move(run))](const std::vector<ElasticHost>& hosts) {
      return PlanElastic(*run, hosts);
    };
    options.elastic = std::move(elastic);
  }
  return Supervise(options, std::cerr);
}

}  // namespace

void AddSuperviseCommand(Command app, int& exit_code) {
  Command command = app.AddCommand(
      "supervise", "Run `-- mpirun … hadal train …`: Ctrl-C saves, a crash restarts, no process is left");
  auto arguments = std::make_shared<SuperviseArguments>();
  command.AddNumber("--tries", arguments->options.tries, "Limit of crashes in a row without a newer checkpoint", 1,
                    1000000);
  command
      .AddOption("--back-off", arguments->back_off,
                 "Wait after a crash without a newer checkpoint; doubles from one to the next, up to 5m")
      .ShowDefault();
  command
      .AddOption("--stopped-limit", arguments->stopped_limit,
                 "A job with a process that is stopped (SIGSTOP) for so long counts as hung, and is restarted")
      .ShowDefault();
  const CommandOption elastic = command.AddOption(
      "--elastic", arguments->elastic.hosts,
      "Hostfile (a line a host: h1 slots=8), or slurm: run on the hosts that answer, in the fastest layout for them; "
      "COMMAND has {ranks}, {hostfile} or {hosts}, and after `hadal train CONFIG…` the word {layout}");
  command
      .AddOption("--probe", arguments->elastic.probe,
                 "Shell command that ends with 0 if {host} can be used (default: ssh; under Slurm srun)")
      .Needs(elastic);
  command.AddOption("--grow-every", arguments->grow_every, "Time between probes of the hosts that an elastic job lacks")
      .ShowDefault()
      .Needs(elastic);
  command.AddOption("command", arguments->options.command, "The command, after --").Required();
  command.Runs([arguments, &exit_code] {
    const absl::StatusOr<int> code = RunSupervise(*arguments);
    if (!code.ok()) PrintToolError("supervise", code.status());
    exit_code = code.ok() ? *code : ExitCodeOf(code.status());
  });
}

}  // namespace hadal
