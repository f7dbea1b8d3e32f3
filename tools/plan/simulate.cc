#include "tools/plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/commands.h"
#include "tools/output/run_record.h"
#include "tools/output/work_progress.h"
#include "tools/python_child.h"
#include "tools/tool_exit_code.h"

namespace hadal {
namespace {

absl::Status SlowDown(const SimulateOptions& options, ReplayCosts& costs) {
  for (const SlowRank& slow : options.slow_ranks) {
    if (slow.rank < 0 || slow.rank >= options.shape.stages || !(slow.factor > 0) || !std::isfinite(slow.factor)) {
      return InvalidArgumentError("slow rank ", slow.rank, "=", slow.factor, ": ranks are 0 … ",
                                  options.shape.stages - 1, " and factors positive");
    }
    for (int chunk = 0; chunk < options.shape.chunks; ++chunk) {
      const int g = options.shape.GlobalChunk(slow.rank, chunk);
      costs.forward_seconds[g] *= slow.factor;
      costs.backward_seconds[g] *= slow.factor;
      if (!costs.weight_seconds.empty()) costs.weight_seconds[g] *= slow.factor;
    }
  }
  return absl::OkStatus();
}

// Whether the link between two neighbours in the ring of ranks leaves a node.
bool LeavesNode(const SimulateOptions& options, int rank, int next) {
  return options.ranks_per_node > 0 && rank / options.ranks_per_node != next / options.ranks_per_node;
}

std::vector<LinkCost> LinkCosts(const SimulateOptions& options) {
  if (!options.links.empty()) return options.links;
  std::vector<LinkCost> links;
  for (int border = 0; border + 1 < options.shape.global_chunks(); ++border) {
    const double bytes = options.message_bytes.empty() ? 0 : options.message_bytes[border];
    const double gradients = options.gradient_bytes.empty() ? bytes : options.gradient_bytes[border];
    const bool leaves = LeavesNode(options, options.shape.RankOf(border), options.shape.RankOf(border + 1));
    const LinkRate& link = leaves ? options.node_link : options.link;
    const int sharing = leaves ? options.pipelines_per_node : 1;
    links.push_back({.held_seconds = link.HeldSeconds(bytes) * sharing,
                     .latency_seconds = link.latency_seconds,
                     .backward_held_seconds = link.HeldSeconds(gradients) * sharing});
  }
  return links;
}

absl::Status CheckMessages(const SimulateOptions& options) {
  const int borders = options.shape.global_chunks() - 1;
  for (const std::vector<double>* bytes : {&options.message_bytes, &options.gradient_bytes}) {
    if (bytes->empty() || std::ssize(*bytes) == borders) continue;
    return InvalidArgumentError("a simulation needs ", borders, " message sizes, got ", bytes->size());
  }
  if (options.pipelines_per_node < 1 || options.ranks_per_node < 0 || !(options.tail_seconds >= 0)) {
    return InvalidArgumentError("pipelines per node must be ≥ 1, ranks per node and the tail ≥ 0");
  }
  return absl::OkStatus();
}

bool IsNumber(const nlohmann::json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_number();
}

double NumberOr0(const nlohmann::json& object, const char* key) {
  return IsNumber(object, key) ? object[key].get<double>() : 0;
}

struct Arguments {
  SimulateOptions options;
  std::string kind = "1f1b";
  int outstanding_sends = 0;
  std::string plan, run;
  double forward_ms = 1, backward_ms = 2, message_mib = 0, tail_ms = 0;
  double link_gb = 0, latency_us = 0, node_link_gb = 0, node_latency_us = 0;
  int stages = 8, chunks = 1, micro_batches = 32;
  std::vector<std::string> slow_ranks;
  std::string svg;
  bool json = false;
};

absl::StatusOr<SlowRank> ParseSlowRank(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '=');
  SlowRank slow;
  if (parts.size() == 2 && absl::SimpleAtoi(parts[0], &slow.rank) && absl::SimpleAtod(parts[1], &slow.factor)) {
    return slow;
  }
  return InvalidArgumentError("--slow-rank ", text, ": expected RANK=FACTOR, e.g. 3=1.5");
}

absl::Status CheckPasses(const ScheduleShape& shape) {
  constexpr int64_t kMostPasses = int64_t{1} << 24;  // half a minute and some GiB
  const int64_t chunks = int64_t{shape.stages} * shape.chunks, passes = chunks * shape.micro_batches;
  if (passes <= kMostPasses) return absl::OkStatus();
  return InvalidArgumentError(chunks, " chunks x ", shape.micro_batches, " micro-batches are ", passes,
                              " passes to replay; at most ", kMostPasses,
                              ": use fewer micro-batches; the bubble is inversely proportional to them");
}

absl::StatusOr<SimulateOptions> CostsOf(const Arguments& arguments) {
  constexpr int64_t kMostPlanBytes = int64_t{1} << 28;
  if (!arguments.plan.empty()) {
    HADAL_ASSIGN_OR_RETURN(const std::string json, ReadFile(arguments.plan, kMostPlanBytes));
    return SimulateOptionsFromPlan(json, arguments.plan);
  }
  if (!arguments.run.empty()) return SimulateOptionsFromRun(arguments.run);
  SimulateOptions options;
  HADAL_ASSIGN_OR_RETURN(options.kind, ParseScheduleKind(arguments.kind));
  options.shape = {arguments.stages, arguments.chunks, arguments.micro_batches};
  HADAL_RETURN_IF_ERROR(CheckPasses(options.shape));
  const int chunks = options.shape.global_chunks();
  options.forward_seconds.assign(chunks, 1e-3 * arguments.forward_ms / arguments.chunks);
  options.backward_seconds.assign(chunks, 1e-3 * arguments.backward_ms / arguments.chunks);
  options.message_bytes.assign(chunks - 1, arguments.message_mib * (1 << 20));
  return options;
}

absl::StatusOr<SimulateOptions> OptionsOf(const Arguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(SimulateOptions options, CostsOf(arguments));
  if (arguments.outstanding_sends > 0) options.outstanding_sends = arguments.outstanding_sends;
  options.ranks_per_node = arguments.options.ranks_per_node;
  options.pipelines_per_node = arguments.options.pipelines_per_node;
  options.link = {1e9 * arguments.link_gb, 1e-6 * arguments.latency_us};
  options.node_link = {1e9 * arguments.node_link_gb, 1e-6 * arguments.node_latency_us};
  const auto is_given = [](const LinkRate& link) { return link.bytes_per_second > 0 || link.latency_seconds > 0; };
  if (is_given(options.link) || is_given(options.node_link)) options.links.clear();
  options.tail_seconds += 1e-3 * arguments.tail_ms;
  for (const std::string& text : arguments.slow_ranks) {
    HADAL_ASSIGN_OR_RETURN(const SlowRank slow, ParseSlowRank(text));
    options.slow_ranks.push_back(slow);
  }
  return options;
}

absl::StatusOr<Simulation> RunSimulate(const Arguments& arguments) {
  HADAL_ASSIGN_OR_RETURN(const SimulateOptions options, OptionsOf(arguments));
  const WorkProgress progress("replaying the schedule", "", 0);
  return Simulate(options);
}

// Prints the simulation, then draws it. Returns the exit code.
int ShowSimulation(const Arguments& arguments, const Simulation& simulation) {
  std::cout << (arguments.json ? SimulationToJson(simulation) : SimulationToText(simulation)) << std::flush;
  if (arguments.svg.empty()) return kToolDone;
  return RunPyhadal("simulate", {"--svg", arguments.svg}, TimelineToJson(simulation).dump());
}

void AddLinkOptions(Command command, Arguments& arguments) {
  const auto add = [&command](const char* name, double& value, const char* text) {
    command.AddNumber(name, value, text, 0.0, 1e12);
  };
  constexpr int kMost = 1 << 16;
  add("--message-mib", arguments.message_mib, "Size of one message, MiB (--plan and --run have their own)");
  add("--link-gb-per-s", arguments.link_gb, "Links within a node, GB/s; 0: unlimited");
  add("--latency-us", arguments.latency_us, "Latency within a node, us");
  command.AddNumber("--ranks-per-node", arguments.options.ranks_per_node, "Stages of a pipeline per node; 0: one node",
                    0, kMost);
  add("--node-link-gb-per-s", arguments.node_link_gb, "Links between nodes, GB/s; 0: unlimited");
  add("--node-latency-us", arguments.node_latency_us, "Latency between nodes, us");
  command.AddNumber("--pipelines-per-node", arguments.options.pipelines_per_node,
                    "Pipelines that share the links between nodes", 1, kMost);
}

}  // namespace

absl::StatusOr<Simulation> Simulate(const SimulateOptions& options) {
  HADAL_RETURN_IF_ERROR(CheckPasses(options.shape));
  ReplayCosts costs{.forward_seconds = options.forward_seconds,
                    .backward_seconds = options.backward_seconds,
                    .weight_seconds = options.weight_seconds,
                    .gap_seconds = options.gap_seconds};
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankProgram> programs, MakeSchedules(options.kind, options.shape));
  if (std::ssize(costs.forward_seconds) != options.shape.global_chunks() ||
      costs.backward_seconds.size() != costs.forward_seconds.size()) {
    return InvalidArgumentError("a simulation needs ", options.shape.global_chunks(),
                                " forward and backward costs, got ", costs.forward_seconds.size(), " and ",
                                costs.backward_seconds.size());
  }
  HADAL_RETURN_IF_ERROR(CheckMessages(options));
  HADAL_RETURN_IF_ERROR(SlowDown(options, costs));
  costs.links = LinkCosts(options);
  Simulation simulation{.options = options};
  HADAL_ASSIGN_OR_RETURN(simulation.result, BreakDownStep(programs, options.shape, costs,
                                                          {.outstanding_sends = options.outstanding_sends}));
  const std::vector<double>& busy = simulation.result.replay.busy_seconds;
  simulation.busiest_rank = static_cast<int>(std::max_element(busy.begin(), busy.end()) - busy.begin());
  simulation.bound_seconds = busy[simulation.busiest_rank] + options.tail_seconds;
  simulation.step_seconds = simulation.result.replay.makespan_seconds + options.tail_seconds;
  return simulation;
}

absl::StatusOr<SimulateOptions> SimulateOptionsFromPlan(const std::string& json, const std::string& name) {
  const nlohmann::json plan = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  const char* const needed[] = {"ranks", "replicas", "chunks", "replica_micro_batches", "outstanding_sends"};
  constexpr int64_t kMost = int64_t{1} << 24;
  const bool whole = std::ranges::all_of(needed, [&](const char* key) {
    return IsNumber(plan, key) && plan[key].is_number_integer() && plan[key].get<int64_t>() >= 1 &&
           plan[key].get<int64_t>() <= kMost;
  });
  if (!whole || !plan.value("schedule", nlohmann::json()).is_string() ||
      !plan.value("stages", nlohmann::json()).is_array()) {
    return InvalidArgumentError(name, ": is not output of `hadal plan --json`");
  }
  SimulateOptions options{.outstanding_sends = plan["outstanding_sends"].get<int>()};
  HADAL_ASSIGN_OR_RETURN(options.kind, ParseScheduleKind(plan["schedule"].get<std::string>()));
  options.shape = {plan["ranks"].get<int>() / plan["replicas"].get<int>(), plan["chunks"].get<int>(),
                   plan["replica_micro_batches"].get<int>(), plan.value("free_links", nlohmann::json()) == true};
  options.tail_seconds = NumberOr0(plan, "tail_seconds");
  options.gap_seconds = NumberOr0(plan, "gap_seconds");
  for (const nlohmann::json& chunk : plan["stages"]) {
    if (!IsNumber(chunk, "forward_seconds") || !IsNumber(chunk, "backward_seconds")) {
      return InvalidArgumentError(name, ": stage ", options.forward_seconds.size(),
                                  " has no forward_seconds and backward_seconds: the plan was made without the "
                                  "device's speed. Make it with --gflops N, --profile FILE or --machine FILE.");
    }
    options.forward_seconds.push_back(chunk["forward_seconds"].get<double>());
    options.backward_seconds.push_back(chunk["backward_seconds"].get<double>());
    if (IsNumber(chunk, "weight_seconds")) options.weight_seconds.push_back(chunk["weight_seconds"].get<double>());
    options.message_bytes.push_back(NumberOr0(chunk, "border_bytes"));
    if (IsNumber(chunk, "gradient_bytes")) options.gradient_bytes.push_back(chunk["gradient_bytes"].get<double>());
  }
  for (std::vector<double>* bytes : {&options.message_bytes, &options.gradient_bytes}) {
    if (!bytes->empty()) bytes->pop_back();  // the last chunk has no border after it
  }
  for (const nlohmann::json& link : plan.value("links", nlohmann::json::array())) {
    options.links.push_back(
        {.held_seconds = NumberOr0(link, "held_seconds"), .latency_seconds = NumberOr0(link, "latency_seconds")});
    if (IsNumber(link, "backward_held_seconds"))
      options.links.back().backward_held_seconds = link["backward_held_seconds"].get<double>();
  }
  return options;
}

absl::StatusOr<SimulateOptions> SimulateOptionsFromRun(const std::string& directory) {
  HADAL_ASSIGN_OR_RETURN(const RunRecord run, ReadRun(directory));
  if (!run.layout || run.trace_path.empty()) {
    return NotFoundError(directory, ": has no ", run.layout ? "trace" : "readable config",
                         "; train with --trace steps=A-B");
  }
  constexpr int64_t kMostTraceBytes = int64_t{1} << 31;
  HADAL_ASSIGN_OR_RETURN(const std::string trace, ReadFile(run.trace_path, kMostTraceBytes));
  HADAL_ASSIGN_OR_RETURN(const std::vector<TracedCosts> steps, CostsFromTrace(trace, *run.layout));
  const TracedCosts& costs = steps[steps.size() / 2];
  SimulateOptions options{.kind = run.layout->schedule,
                          .shape = run.layout->shape,
                          .outstanding_sends = run.layout->outstanding_sends,
                          .forward_seconds = costs.forward_seconds,
                          .backward_seconds = costs.backward_seconds,
                          .traced_seconds = costs.span_seconds};
  options.shape.micro_batches = costs.micro_batches;
  return options;
}

void AddSimulateCommand(Command app, int& exit_code) {
  Command command = app.AddCommand("simulate", "Simulate a schedule with given ranks, costs and links");
  auto arguments = std::make_shared<Arguments>();
  constexpr int kMost = 1 << 16;
  constexpr double kMostMilliseconds = 1e9;
  CommandOption plan = command.AddOption("--plan", arguments->plan, "Shape and costs from `hadal plan --json`");
  CommandOption run = command.AddOption("--run", arguments->run, "Shape and costs from a run's trace").Excludes(plan);
  const auto own = [&plan, &run](CommandOption option) { option.ShowDefault().Excludes(plan).Excludes(run); };
  own(command.AddOption("--kind", arguments->kind, "The schedule: " + absl::StrJoin(AllScheduleNames(), ", ")));
  own(command.AddOption("--stages", arguments->stages, "Ranks").InRange(1, kMost));
  own(command.AddOption("--chunks", arguments->chunks, "Chunks per rank").InRange(1, kMost));
  own(command.AddOption("--micro-batches", arguments->micro_batches, "Micro-batches per step").InRange(1, kMost));
  own(command.AddOption("--forward-ms", arguments->forward_ms, "A rank's forward of one micro-batch, ms")
          .InRange(0.0, kMostMilliseconds));
  own(command.AddOption("--backward-ms", arguments->backward_ms, "A rank's backward of one micro-batch, ms")
          .InRange(0.0, kMostMilliseconds));
  command
      .AddOption("--outstanding-sends", arguments->outstanding_sends,
                 "Messages that a channel may have in flight (default: the plan's or the run's, else 2)")
      .InRange(1, kMost);
  AddLinkOptions(command, *arguments);
  command.AddOption("--slow-rank", arguments->slow_ranks, "RANK=FACTOR: that rank computes FACTOR times as long");
  command.AddNumber("--tail-ms", arguments->tail_ms,
                    "Optimizer and other work at a step's end, ms; added to that of --plan", 0.0, kMostMilliseconds);
  command.AddOption("--svg", arguments->svg, "Draw the timeline into this file");
  command.AddFlag("--json", arguments->json, "Print everything as JSON");
  command.Runs([arguments, &exit_code] {
    const absl::StatusOr<Simulation> simulation = RunSimulate(*arguments);
    exit_code = simulation.ok() ? ShowSimulation(*arguments, *simulation) : EndTool("simulate", simulation.status());
  });
}

}  // namespace hadal
