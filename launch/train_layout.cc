#include "launch/train_layout.h"

#include <string>
#include <utility>

#include "pipeline/memory_fit.h"
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

// Cuts the model, within the memory that a rank may take.
absl::StatusOr<PipelinePlan> PlanPipeline(const ModelPlan& plan, const BatchOptions& batch, const World& world,
                                          const Device* device, const Stream& stream, Collectives& collectives,
                                          PipelineOptions& options) {
  HADAL_RETURN_IF_ERROR(LimitMemory(plan, batch, world, device, collectives, options));
  HADAL_RETURN_IF_ERROR(FitMemory(plan, batch, world.size(), stream, options));
  return MakePipelinePlan(plan, batch, options, world.size(), world.rank());
}

}  // namespace

absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, World& world, Collectives& collectives,
                                    TrainOptions& options, RankDevice& device) {
  HADAL_ASSIGN_OR_RETURN(ModelPlan plan, SharePlan(options.model, world, collectives));
  HADAL_ASSIGN_OR_RETURN(device.chosen, ChooseDevice(arguments.device, plan, options, world, collectives));
  const ChosenDevice& chosen = device.chosen;
  plan.compute_storage = chosen.compute_storage;
  HADAL_ASSIGN_OR_RETURN(device.transport,
                         ChooseTransport(options.pipeline.transport, chosen.device ? chosen.device->Identity() : "",
                                         world.communicator(), collectives));
  options.pipeline.device_transfers = device.transport.nccl != nullptr;
  const Stream stream = chosen.StreamFor(world.stream());
  HADAL_ASSIGN_OR_RETURN(plan.relu_masks, AgreeOnReluMasks(plan, options.batch, options.pipeline, stream, collectives));
  absl::StatusOr<PipelinePlan> pipeline =
      PlanPipeline(plan, options.batch, world, chosen.device.get(), stream, collectives, options.pipeline);
  HADAL_RETURN_IF_ERROR(Explained(pipeline.status(), arguments));
  return RunLayout{.plan = std::move(plan), .pipeline = *std::move(pipeline), .stream = stream};
}

}  // namespace hadal
