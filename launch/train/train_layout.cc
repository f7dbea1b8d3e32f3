#include "launch/train/train_layout.h"

#include <string>
#include <utility>

#include "pipeline/engine/memory_fit.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// Rank 0's plan is everybody's.
absl::StatusOr<ModelPlan> SharePlan(const ModelOptions& options, const World& world, Collectives& collectives) {
  std::string bytes;
  if (world.rank() == 0) bytes = ModelPlan::Make(options).Serialize();
  HADAL_RETURN_IF_ERROR(collectives.Broadcast(bytes, 0, "the model plan"));
  return ModelPlan::Parse(bytes);
}

}  // namespace

absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, World& world, Collectives& collectives,
                                    const TrainOptions& options, RankDevice& device) {
  HADAL_ASSIGN_OR_RETURN(ModelPlan plan, SharePlan(options.model, world, collectives));
  HADAL_ASSIGN_OR_RETURN(device.chosen, ChooseDevice(arguments.device, plan, options, world, collectives));
  const ChosenDevice& chosen = device.chosen;
  plan.compute_storage = chosen.compute_storage;
  HADAL_ASSIGN_OR_RETURN(device.transport,
                         ChooseTransport(options.pipeline.transport, chosen.device ? chosen.device->Identity() : "",
                                         world.communicator(), collectives));
  const bool device_transfers = device.transport.nccl != nullptr;
  const Stream stream = chosen.StreamFor(world.stream());
  HADAL_ASSIGN_OR_RETURN(plan.relu_masks, AgreeOnReluMasks(plan, options.batch, options.pipeline, stream, collectives));
  const absl::StatusOr<int64_t> limit = AgreeOnMemoryLimit(plan, options.batch, options.pipeline, device_transfers,
                                                           world, chosen.device.get(), collectives);
  HADAL_RETURN_IF_ERROR(Explained(limit.status(), arguments));
  const RankResources resources{.device_transfers = device_transfers, .memory_limit_bytes = *limit};
  absl::StatusOr<PipelinePlan> pipeline =
      MakeFittingPlan(plan, options.batch, options.pipeline, world.size(), world.rank(), resources, stream);
  HADAL_RETURN_IF_ERROR(Explained(pipeline.status(), arguments));
  return RunLayout{.plan = std::move(plan), .resources = resources, .pipeline = *std::move(pipeline), .stream = stream};
}

}  // namespace hadal
