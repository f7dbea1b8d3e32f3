// What a training rank computes on, how much memory it may take of it, and how the ranks' devices talk.
//
// Blocking: all ranks call each of these together.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launch/device_choice.h"
#include "launch/transport_choice.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/stream.h"

namespace hadal {

// Apart from what uses it, because it must last until a failed job has been aborted.
struct RankDevice {
  ChosenDevice chosen;
  ChosenTransport transport;
  std::unique_ptr<NcclCommunicator> devices;  // null: what ranks exchange goes through the host
};

// ModelPlan::relu_masks for a run in bf16: what rank 0's device has, so that all ranks lay out the same; where another
// rank's has not, its memory for them is idle.  Errors: those of transfers.
absl::StatusOr<bool> AgreeOnReluMasks(const ModelPlan& plan, const BatchOptions& batch, const PipelineOptions& options,
                                      const Stream& stream, Collectives& collectives);

// RankResources::memory_limit_bytes for a run: the config's, and where that sets none, launch/memory_limit.h's.
// `device_transfers`: RankResources'.
// Errors: ResourceExhausted where a rank would have nothing; MakePipelinePlan's; those of transfers.
absl::StatusOr<int64_t> AgreeOnMemoryLimit(const ModelPlan& plan, const BatchOptions& batch,
                                           const PipelineOptions& options, bool device_transfers, const World& world,
                                           const Device* device, Collectives& collectives);

// A sentence for people where a rank has more CUDA streams than its GPU has hardware queues, in which messages may then
// stand behind those of other links, against what nccl_communicator.h proves; else "".
std::string MoreStreamsThanQueues(int links);

// Connects the ranks' devices where they exchange by NCCL. Returns a warning for people, or "".  Errors: those of NCCL.
absl::StatusOr<std::string> ConnectDevices(const ModelPlan& plan, const PipelinePlan& pipeline, World& world,
                                           absl::Duration timeout, RankDevice& device);

}  // namespace hadal
