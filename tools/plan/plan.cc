// `hadal plan FILES… [--set a.b=c]… [--ranks N] [--threads T] [--device cpu|cuda] [--gflops X] [--vocabulary V]
// [--nodes N] [--write-gb-per-second X] [--grace-seconds S] [--sublayers] [--all-ranks] [--json]`
//
// Reports what a training run of this config would look like: stages, parameters, shares of the cost, memory by
// category and rank (the arena's bytes), predicted time, bubble, live micro-batches, borders, residual gains; and what
// a cluster must have besides: the hosts' memory, space and time for checkpoints. It trains and allocates nothing. For
// a GPU (--device cuda; none is needed) memory is the device's, to the byte of what a run allocates; times are given
// only with --gflops. A config that does not fit pipeline.memory_limit_bytes is refused, with the nearest one that
// does. Exit codes: 0 done, 1 it does not fit, 2 bad config or usage.
#include "tools/commands.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/status_macros.h"
#include "runtime/text.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/run_options.h"
#include "tools/output/work_progress.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_candidates.h"
#include "tools/plan/layout_search.h"
#include "tools/plan/plan_report.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

struct PlanArguments {
  ConfigArguments config;
  int ranks = 0;
  int threads = 0;
  int32_t vocabulary = 0;
  double gflops = 0;
  PlanText text;
  bool json = false;
  CostFiles costs;
  std::string device = "cpu";
  int nodes = 0;
  int top = SearchOptions().top;
  ClusterOptions cluster;
};

absl::Status FindVocabularies(const PlanArguments& arguments, TrainOptions& options) {
  if (arguments.vocabulary > 0) {
    options.model.source_vocabulary =
        options.model.translates() && !options.model.reads_speech() ? arguments.vocabulary : 0;
    options.model.target_vocabulary = arguments.vocabulary;
    return absl::OkStatus();
  }
  return FollowPreparedCorpus(options);
}

// A batch is in every config: its tokens are always kept, and the size of micro-batches if --set names one.
KeptFields FieldsOf(const config::Pipeline& pipeline, const std::vector<std::string>& overrides) {
  return {
      .stages = pipeline.stages() > 0,
      .replicas = pipeline.has_replicas(),
      .chunks = pipeline.has_chunks(),
      .schedule = pipeline.has_schedule(),
      .recompute_every = pipeline.has_recompute_every(),
      .optimizer_sharding = pipeline.has_optimizer_sharding(),
      .batch = std::ranges::any_of(overrides, [](const std::string& set) { return absl::StartsWith(set, "batch."); })};
}

absl::StatusOr<std::string> PlanForMachine(const PlanArguments& arguments, const config::RunConfig& config,
                                           const TrainOptions& options) {
  HADAL_ASSIGN_OR_RETURN(LoadedCosts loaded, LoadCosts(arguments.costs));
  Machine& machine = *loaded.machine;
  if (loaded.profile && machine.device() == DeviceKind::kCuda) {
    return InvalidArgumentError("a profile has the times of CPUs, and the machine \"", Printable(machine.name),
                                "\" has GPUs; give one of the two");
  }
  if (arguments.nodes > 0) machine.nodes = arguments.nodes;
  const auto warn = [&machine](const char* field, const char* where) {
    std::cerr << "warning: " << Printable(machine.name) << " has no " << field << ": transfers " << where
              << " take no time in this plan\n";
  };
  const bool has_link = loaded.profile.has_value() || machine.intra_node.bytes_per_second > 0;
  if (machine.devices_per_node > 1 && !has_link) warn("intra_node.gb_per_second", "within a node");
  if (machine.nodes > 1 && machine.inter_node.bytes_per_second == 0) {
    warn("inter_node.gb_per_second", "between nodes");
  }
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<StepCosts> costs, loaded.For(options.model));
  const int threads = arguments.threads > 0 ? arguments.threads : std::max(1, options.pipeline.threads);
  const WorkProgress progress("searching for the fastest layout", "", 0);
  const KeptFields kept = FieldsOf(config.pipeline(), arguments.config.overrides);
  HADAL_ASSIGN_OR_RETURN(LayoutSearch search,
                         SearchLayouts(options, machine, *costs, threads, {.top = arguments.top, .kept = kept}));
  ClusterOptions cluster = arguments.cluster;
  cluster.ranks_per_node = machine.devices_per_node;
  search.best.front().cluster = ClusterNeedsOf(search.best.front(), options, cluster);
  const SearchText about{.options = options, .machine = machine, .costs = *costs, .kept = kept};
  return arguments.json ? LayoutSearchToJson(search, about) : LayoutSearchToText(search, about);
}

constexpr int kMostRanks = 1 << 16;

absl::StatusOr<PlanReport> ReportOfConfig(const PlanArguments& arguments, const TrainOptions& options) {
  const int64_t asked = int64_t{std::max(1, options.pipeline.stages)} * options.pipeline.replicas;
  if (arguments.ranks == 0 && asked > kMostRanks) {
    return InvalidArgumentError("pipeline.stages x pipeline.replicas = ", asked, " ranks, more than hadal has (",
                                kMostRanks, ")");
  }
  const int ranks = arguments.ranks > 0 ? arguments.ranks : static_cast<int>(asked);
  const int threads = arguments.threads > 0 ? arguments.threads : std::max(1, options.pipeline.threads);
  if (arguments.device == "cuda") {
    const MachineRate rate{.gflops = arguments.gflops};
    return MakePlanReport(options, ranks, Stream::ForLayouts(DeviceKind::kCuda, threads), rate);
  }
  if (options.precision == TrainingPrecision::kBf16 || options.precision == TrainingPrecision::kTf32) {
    return InvalidArgumentError(
        "device.precision needs a GPU: plan with --device cuda or --machine, or set it to \"auto\" or \"fp32\"");
  }
  const Stream stream = Stream::Cpu(threads);
  if (!arguments.costs.profile.empty()) {
    HADAL_ASSIGN_OR_RETURN(const LoadedCosts loaded, LoadCosts(arguments.costs));
    HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<StepCosts> costs, loaded.For(options.model));
    return MakePlanReport(options, ranks, stream, *costs);
  }
  MachineRate rate = MeasureRate(options.model, CapacityOf(options.model, options.batch), stream);
  if (arguments.gflops > 0) rate = {arguments.gflops, rate.adam_elements_per_second, /*measured=*/false};
  return MakePlanReport(options, ranks, stream, rate);
}

absl::StatusOr<std::string> PlanConfig(const PlanArguments& arguments, const config::RunConfig& config) {
  HADAL_ASSIGN_OR_RETURN(RunOptions run, MakeRunOptions(config));
  HADAL_RETURN_IF_ERROR(CheckFieldsWithEffect(config));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> unheard, LayersWithoutEffect(arguments.config.files));
  run.warnings.insert(run.warnings.end(), unheard.begin(), unheard.end());
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << Printable(warning) << "\n";
  TrainOptions& options = run.train;
  HADAL_RETURN_IF_ERROR(FindVocabularies(arguments, options));
  HADAL_RETURN_IF_ERROR(ValidateModelOptions(options.model));
  if (!arguments.costs.machine.empty()) return PlanForMachine(arguments, config, options);
  const WorkProgress progress("planning", "", 0);
  HADAL_ASSIGN_OR_RETURN(PlanReport report, ReportOfConfig(arguments, options));
  const int nodes = std::max(1, arguments.nodes), ranks = static_cast<int>(report.layouts.size());
  ClusterOptions cluster = arguments.cluster;
  cluster.ranks_per_node = (ranks + nodes - 1) / nodes;
  report.cluster = ClusterNeedsOf(report, options, cluster);
  return arguments.json ? PlanToJson(report, arguments.text) : PlanToText(report, arguments.text);
}

absl::StatusOr<std::string> Plan(const PlanArguments& arguments) {
  const auto& [files, overrides] = arguments.config;
  HADAL_ASSIGN_OR_RETURN(const config::RunConfig config, LoadConfig(files, overrides));
  absl::StatusOr<std::string> text = PlanConfig(arguments, config);
  if (text.ok()) return text;
  return WithOrigins(text.status(), files, overrides);
}

}  // namespace

void AddPlanCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("plan", "Show stages, memory and predicted time of a run before it starts");
  auto arguments = std::make_shared<PlanArguments>();
  AddConfigArguments(command, arguments->config);
  CommandOption ranks =
      command.AddOption("--ranks", arguments->ranks, "Ranks of the run (default: pipeline.stages x pipeline.replicas)")
          .InRange(1, kMostRanks);
  command.AddOption("--threads", arguments->threads, "CPU threads per rank (default: pipeline.threads, or 1)")
      .InRange(1, 1024);
  CommandOption gflops = command
                             .AddOption("--gflops", arguments->gflops,
                                        "Speed of a rank's matrix products, Gflop/s (default: measured here)")
                             .InRange(1e-3, 1e9);
  command.AddOption("--vocabulary", arguments->vocabulary, "Tokens of both sides (default: the prepared corpus's)")
      .InRange(5, 1 << 24);
  CommandOption device =
      command.AddOption("--device", arguments->device, "Device of the ranks: cpu, cuda (no GPU is needed)")
          .OneOf({"cpu", "cuda"})
          .ShowDefault();
  CommandOption machine = command.AddOption(
      "--machine", arguments->costs.machine,
      absl::StrCat("Search for the best layout on this machine (configs/machines); what the config "
                   "sets of pipeline, and --set of batch, is kept; tries at most ",
                   kMostCandidatesOfAGrid,
                   " layouts for each way to divide the devices into stages x replicas, at any depth"));
  command.AddOption("--nodes", arguments->nodes, "Nodes of the cluster (default: from the machine's description, or 1)")
      .InRange(1, 1 << 16);
  command.AddNumber("--write-gb-per-second", arguments->cluster.write_gb_per_second,
                    "Speed at which all ranks together write a checkpoint, 1e9 bytes/s", 1e-6, 1e6);
  command.AddNumber("--grace-seconds", arguments->cluster.grace_seconds,
                    "Time from a job's signal to its end, in which a run must save", 0.0, 1e9);
  machine.Excludes(device).Excludes(ranks).Excludes(gflops);
  command.AddNumber("--top", arguments->top, "Layouts to list", 1, 100).Needs(machine);
  command.AddOption("--profile", arguments->costs.profile, "Costs measured by `hadal bench profile`").Excludes(device);
  command.AddFlag("--sublayers", arguments->text.sublayers, "List every sublayer").Excludes(machine);
  command.AddFlag("--all-ranks", arguments->text.all_ranks, "List every rank; else more than 16 share lines")
      .Excludes(machine);
  command.AddFlag("--json", arguments->json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] { exit_code = EndTool("plan", Plan(*arguments)); });
}

}  // namespace hadal
