// How a run lies on its ranks: the model's plan, what each rank computes on, how the devices exchange, and where the
// model is cut so that every rank's part fits its memory.
#pragma once

#include "absl/status/statusor.h"
#include "launch/rank_device.h"
#include "launch/train_preparation.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/stream.h"

namespace hadal {

struct RunLayout {
  ModelPlan plan;           // the same on all ranks
  RankResources resources;  // what the ranks were found to have
  PipelinePlan pipeline;    // of this rank's replica, with the activation checkpointing that fits
  Stream stream;            // on the rank's device, or on the CPU
};

// Chooses the rank's device and transport into `device`, which must outlive the layout.
// Blocking: all ranks call it together, of one `options`.
// Errors: ChooseDevice's, ChooseTransport's, AgreeOnMemoryLimit's, MakeFittingPlan's; where the pipeline cannot be cut
// so (InvalidArgument), with the file or argument that set the field; those of transfers.
absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, World& world, Collectives& collectives,
                                    const TrainOptions& options, RankDevice& device);

}  // namespace hadal
