// Chooses what a training rank computes on, how much of its memory it may use, and how the ranks' devices communicate.
//
// Blocking: all ranks call each function together.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launch/job/device_choice.h"
#include "launch/job/transport_choice.h"
#include "launch/job/world.h"
#include "layers/model_plan.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/stream.h"

namespace hadal {

// A struct of its own, because it must live until a failed job has been aborted.
struct RankDevice {
  ChosenDevice chosen;
  ChosenTransport transport;
  std::unique_ptr<NcclCommunicator> device_communicator;  // null: ranks exchange through host memory
};

// Returns ModelPlan::relu_masks for a run in bf16: rank 0's answer, so that all ranks have the same layout. A rank
// whose device has no masks leaves the memory for them unused.  Errors: those of Communicator::Wait.
absl::StatusOr<bool> AgreeOnReluMasks(const ModelPlan& plan, const BatchOptions& batch, const PipelineOptions& options,
                                      const Stream& stream, Collectives& collectives);

// Returns RankResources::memory_limit_bytes of a run: the config's, or launch/job/memory_limit.h's if the config sets
// none. `device_transfers`: as in RankResources.
// Errors: ResourceExhausted if a rank would have nothing; MakePipelinePlan's; those of Communicator::Wait.
absl::StatusOr<int64_t> AgreeOnMemoryLimit(const ModelPlan& plan, const BatchOptions& batch,
                                           const PipelineOptions& options, bool device_transfers, const World& world,
                                           const Device* device, Collectives& collectives);

// A message for the user if a rank has more CUDA streams than its GPU has hardware queues; else "". Messages may then
// queue behind those of other links, which nccl_communicator.h's proof excludes.
std::string MoreStreamsThanQueues(int links);

// Connects the ranks' devices if they use NCCL. Returns a warning for the user, or "".  Errors: those of NCCL.
absl::StatusOr<std::string> ConnectDevices(const ModelPlan& plan, const PipelinePlan& pipeline, World& world,
                                           absl::Duration timeout, RankDevice& device);

}  // namespace hadal
