// Lays a run out on its ranks: the model's plan, each rank's device, the transport between devices, and the cut of the
// model such that every rank's part fits its memory.
#pragma once

#include "absl/status/statusor.h"
#include "launch/job/world.h"
#include "launch/train/rank_device.h"
#include "launch/train/train_preparation.h"
#include "layers/model_plan.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/stream.h"

namespace hadal {

struct RunLayout {
  ModelPlan plan;           // the same on all ranks
  RankResources resources;  // what the ranks were found to have
  PipelinePlan pipeline;    // of this rank's replica, with the recomputation that fits
  Stream stream;            // on the rank's device, or on the CPU
};

// Chooses the rank's device and transport into `device`, which must outlive the layout.
// Blocking: all ranks call it together, with the same `options`.
// Errors: ChooseDevice's, ChooseTransport's, AgreeOnMemoryLimit's, MakeFittingPlan's; InvalidArgument if the pipeline
// cannot be cut as asked, with the file or argument that set the field; those of Communicator::Wait.
absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, World& world, Collectives& collectives,
                                    const TrainOptions& options, RankDevice& device);

}  // namespace hadal
