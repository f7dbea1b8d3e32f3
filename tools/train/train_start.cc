#include "tools/train/train_start.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launch/memory_limit.h"
#include "launch/transport_choice.h"
#include "pipeline/checkpoint/run_owner.h"
#include "pipeline/engine/memory_fit.h"
#include "pipeline/exchange/process_grid.h"
#include "pipeline/layout/relu_masks.h"
#include "pipeline/options/train_options.h"
#include "runtime/device_watch.h"
#include "runtime/status_macros.h"
#include "tools/config/nearest_name.h"
#include "tools/config/resolved_config.h"
#include "tools/train/resume.h"

namespace hadal {
namespace {

// Returns the command line options that must be equal on all ranks, as text.
std::string CommandText(const TrainArguments& arguments) {
  return absl::StrCat("--run-dir ", arguments.run_directory, " --resume ", arguments.StartRequest(),
                      arguments.init_from.empty() ? "" : " --init-from ", arguments.init_from,
                      arguments.deepen ? absl::StrCat(" --deepen --deepen-rule ", arguments.deepen_rule) : "",
                      arguments.new_rows == NewRows::kMean ? " --new-rows mean" : "",
                      arguments.accept_changes ? " --accept-changes" : "", arguments.take_over ? " --take-over" : "",
                      " --device ", arguments.device.kind, arguments.trace.empty() ? "" : " --trace ", arguments.trace);
}

// Rank 0: checks that no other attempt is at work in the run directory; fills the model plan, the use of ReLU masks,
// and the effective --resume for all ranks.
absl::Status DecideAlone(const TrainArguments& arguments, const TrainOptions& options, ModelPlan plan,
                         const Device* device, const Stream& stream, TrainingSinks& sinks, RankSetup& facts) {
  HADAL_RETURN_IF_ERROR(CheckRunDirectory(arguments.run_directory));
  if (!arguments.take_over) {
    // The other ranks wait meanwhile.
    HADAL_ASSIGN_OR_RETURN(facts.predecessor, FindPredecessor(arguments.run_directory, kOwnerSilence,
                                                              [&](const std::string& text) { sinks.Tell(text); }));
  }
  facts.plan = plan.Serialize();
  plan.compute_storage = DeviceStorage(options.precision);
  if (device != nullptr && plan.compute_storage == Storage::kBFloat16) {
    facts.relu_masks =
        HasReluMasks(plan, CapacityOf(plan.options, options.batch), options.pipeline.bucket_rows, stream);
    stream.Synchronize();  // ends the device's watch of this thread, which now waits for other ranks
  }
  const Environment environment = [](const char* name) { return std::getenv(name); };
  HADAL_ASSIGN_OR_RETURN(facts.resume,
                         ResumeOfThisAttempt(arguments.run_directory, arguments.StartRequest(), environment));
  facts.applied_step = AppliedStep(arguments.run_directory, arguments.StartRequest(), environment);
  facts.sum_groups = SumGroupsOf(arguments, facts.resume, options);
  return absl::OkStatus();
}

// Opens this rank's device and returns its RankSetup.
RankSetup FactsHere(const TrainArguments& arguments, const absl::StatusOr<PreparedRun>& prepared, const World& world,
                    RunDevice& device, TrainingSinks& sinks) {
  RankSetup facts{.rank = FactsOf(world), .error = prepared.status(), .command = CommandText(arguments)};
  if (!prepared.ok()) return facts;
  const TrainOptions& options = prepared->options.train;
  facts.config_text = prepared->config_text;
  facts.train = FactsOf(options.train_data, *prepared->train);
  if (prepared->validation) facts.validation = FactsOf(options.validation_data, *prepared->validation);
  ModelPlan plan = ModelPlan::Make(options.model);
  DeviceRequest request = arguments.device;
  request.hung = device.hung;
  FoundDevice found = FindDevice(request, plan, options, world.local_rank());
  device.device = std::move(found.device);
  facts.device = std::move(found.facts);
  device.nccl = FindNccl(options.pipeline.transport, world.size(), facts.device);
  if (world.rank() == 0) {
    const Stream stream = device.device ? Stream::On(*device.device, world.stream().threads()) : world.stream();
    facts.error = DecideAlone(arguments, options, std::move(plan), device.device.get(), stream, sinks, facts);
  }
  return facts;
}

absl::StatusOr<std::vector<RankSetup>> Gather(const RankSetup& mine, Collectives& collectives) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::string> gathered,
                         collectives.AllGather(Pack(mine), "what the ranks start with"));
  std::vector<RankSetup> ranks;
  for (const std::string& bytes : gathered) {
    HADAL_ASSIGN_OR_RETURN(ranks.emplace_back(), Unpack(bytes));
  }
  return ranks;
}

// Returns RankResources::memory_limit_bytes: the config's value, or that of memory_limit.h if the config sets none.
absl::StatusOr<int64_t> MemoryLimit(const ModelPlan& plan, const TrainOptions& options,
                                    std::span<const RankSetup> ranks, const CommonSettings& common) {
  if (options.pipeline.memory_limit_bytes != 0) return options.pipeline.memory_limit_bytes;
  int64_t driver_bytes = 0;
  if (common.gpu) {
    HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                           MakePipelineLayout(plan, options.batch, options.pipeline, static_cast<int>(ranks.size()),
                                              /*rank=*/0, {.device_transfers = common.nccl}));
    driver_bytes = DriverBytes(plan, pipeline);
  }
  std::vector<MemoryFacts> memory;
  for (const RankSetup& facts : ranks) {
    const int64_t of_host = facts.rank.available_bytes >= 0 ? facts.rank.available_bytes : MemoryFacts::kUnknown;
    memory.push_back({.device = common.gpu ? facts.device.identity : "",
                      .free_bytes = common.gpu ? facts.device.free_bytes : of_host,
                      .ranks_on_host = facts.rank.ranks_on_host});
  }
  if (const std::string nothing = NothingIsLeft(memory, driver_bytes); !nothing.empty()) {
    return ResourceExhaustedError(nothing);
  }
  return MemoryLimitBytes(memory, driver_bytes);
}

// Connects the ranks' devices if they use NCCL. Returns a warning for the user, or "".
absl::StatusOr<std::string> Connect(const RunLayout& layout, World& world, absl::Duration timeout, RunDevice& device) {
  if (device.nccl == nullptr) return std::string();
  // NCCL's calls, too, may be stuck in the driver; `timeout` is that of its waits for other ranks.
  DeviceWatch watch({.timeout = 2 * timeout, .hung = device.hung});
  const DeviceWatch::Wait wait(watch, "connecting to other ranks' devices");
  const int64_t free_before = device.device->FreeBytes();
  const std::vector<TransferGroup> groups = TransferGroups(layout.plan, layout.pipeline);
  HADAL_ASSIGN_OR_RETURN(device.communicator,
                         NcclCommunicator::Create(*device.nccl, *device.device, world.communicator(), groups, timeout));
  return NcclTookMore(free_before - device.device->FreeBytes(), MostConnections(groups), world.rank());
}

}  // namespace

absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, const TrainOptions& options,
                                    std::span<const RankSetup> ranks, const CommonSettings& common, int rank,
                                    const Stream& stream) {
  HADAL_ASSIGN_OR_RETURN(ModelPlan plan, ModelPlan::Parse(ranks[0].plan));
  plan.compute_storage = common.compute_storage;
  // If a device has no ReLU masks, the memory planned for them stays unused.
  if (common.compute_storage == Storage::kBFloat16) plan.relu_masks = ranks[0].relu_masks;
  absl::StatusOr<std::vector<bool>> frozen = FrozenParameters(plan, options.frozen);
  HADAL_RETURN_IF_ERROR(Explained(frozen.status(), arguments));
  plan.frozen = *std::move(frozen);
  plan.muon_steps = options.optimizer.muon_steps();
  const absl::StatusOr<int64_t> limit = MemoryLimit(plan, options, ranks, common);
  HADAL_RETURN_IF_ERROR(Explained(limit.status(), arguments));
  const RankResources resources{
      .device_transfers = common.nccl, .free_links = !common.gpu, .memory_limit_bytes = *limit};
  // Every rank lays out all ranks, and must compute the same plan as the others: for the same number of threads.
  int threads = stream.threads();
  for (const RankSetup& facts : ranks) threads = std::max(threads, facts.rank.threads);
  const Stream widest = stream.device() != nullptr ? stream : Stream::ForLayouts(DeviceKind::kCpu, threads);
  absl::StatusOr<PipelineLayout> pipeline =
      MakeFittingLayout(plan, options.batch, options.pipeline, static_cast<int>(ranks.size()), rank, resources, widest);
  HADAL_RETURN_IF_ERROR(Explained(pipeline.status(), arguments));
  return RunLayout{.plan = std::move(plan), .resources = resources, .pipeline = *std::move(pipeline), .stream = stream};
}

absl::StatusOr<std::vector<bool>> FrozenParameters(const ModelPlan& plan, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return std::vector<bool>();
  std::vector<bool> frozen(plan.parameters.size());
  for (const std::string& pattern : patterns) {
    bool matches = false;
    std::vector<std::string> names;  // of parameters and of modules, as patterns
    for (size_t p = 0; p < frozen.size(); ++p) {
      const std::string name = plan.ParameterName(static_cast<int32_t>(p));
      const bool match = fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
      matches |= match;
      frozen[p] = frozen[p] || match;
      names.push_back(name);
      for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
        names.push_back(name.substr(0, dot) + ".*");
      }
    }
    if (matches) continue;
    const std::string nearest = NearestName(pattern, names);
    return InvalidArgumentError("optimizer.frozen: no parameter of the model matches \"", pattern, "\"",
                                nearest.empty() ? "; `hadal checkpoint ls CHECKPOINT --parameters` prints their names"
                                                : absl::StrCat("; did you mean \"", nearest, "\"?"));
  }
  if (std::ranges::find(frozen, false) != frozen.end()) return frozen;
  return InvalidArgumentError("optimizer.frozen matches every parameter: nothing is left to train");
}

absl::Status ApplySettings(const CommonSettings& common, int rank, PreparedRun& prepared) {
  UseInstructionSets(common.instruction_sets);
  if (!common.reads_all[rank]) return absl::OkStatus();
  HADAL_ASSIGN_OR_RETURN(prepared.train, Corpus::Open(prepared.options.train.train_data));
  if (prepared.validation) {
    HADAL_ASSIGN_OR_RETURN(prepared.validation, Corpus::Open(prepared.options.train.validation_data));
  }
  return absl::OkStatus();
}

absl::StatusOr<AgreedRun> AgreeOnRun(const TrainArguments& arguments, absl::StatusOr<PreparedRun>& prepared,
                                     World& world, Collectives& collectives, RunDevice& device, TrainingSinks& sinks) {
  HADAL_ASSIGN_OR_RETURN(const std::vector<RankSetup> ranks,
                         Gather(FactsHere(arguments, prepared, world, device, sinks), collectives));
  TrainOptions options = prepared.ok() ? prepared->options.train : TrainOptions();
  const absl::StatusOr<CommonSettings> common = AgreeOnSettings(
      ranks, {.device = arguments.device, .precision = options.precision, .transport = options.pipeline.transport});
  if (!common.ok()) return AsCommonError(common.status());
  options.batch.sum_groups = prepared->options.train.batch.sum_groups = ranks[0].sum_groups;
  prepared->config.mutable_batch()->set_sum_groups(ranks[0].sum_groups);
  HADAL_ASSIGN_OR_RETURN(prepared->config_text, ResolvedConfigText(prepared->config));
  if (!common->gpu) device.device = nullptr;
  if (!common->nccl) device.nccl = nullptr;
  HADAL_RETURN_IF_ERROR(
      collectives.AllOk(ApplySettings(*common, world.rank(), *prepared), "reading every byte of a corpus"));
  const Stream stream = device.device ? Stream::On(*device.device, world.stream().threads()) : world.stream();
  absl::StatusOr<RunLayout> laid_out = LayOutRun(arguments, options, ranks, *common, world.rank(), stream);
  HADAL_RETURN_IF_ERROR(collectives.AllOk(laid_out.status(), "laying out the run"));
  RunLayout layout = *std::move(laid_out);

  for (const std::string& warning : prepared->options.warnings) sinks.Warn(warning);
  if (!world.warning().empty()) sinks.Tell(absl::StrCat("warning: ", world.warning()));
  std::vector<std::string> notices = common->notices;
  if (ranks[0].resume != arguments.StartRequest()) {
    notices.push_back(absl::StrCat("an earlier attempt of this job has done --resume ", arguments.StartRequest(),
                                   ": continuing from the newest checkpoint"));
  }
  for (const std::string& notice : notices) {
    if (world.rank() == 0) sinks.Tell(notice);
  }
  HADAL_ASSIGN_OR_RETURN(const std::string warning,
                         Connect(layout, world, absl::Seconds(options.pipeline.wait_timeout_seconds), device));
  if (!warning.empty()) sinks.Tell(absl::StrCat("warning: ", warning));
  AgreedRun agreed{.layout = std::move(layout), .resume = ranks[0].resume, .applied_step = ranks[0].applied_step};
  if (!arguments.take_over) agreed.predecessor = ranks[0].predecessor;
  for (const RankSetup& facts : ranks) agreed.hosts.push_back(facts.rank.host);
  return agreed;
}

}  // namespace hadal
