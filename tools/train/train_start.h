// Agrees on a training run with all ranks: compares their preparations and lays out the pipeline.
//
// AgreeOnRun: each rank fills its RankSetup; all gather them; AgreeOnSettings computes the common settings; each rank
// applies them and lays out the pipeline; the ranks vote after each of these; with NCCL they connect their devices.
// One gather suffices: each rank opens its GPU for the model of its own config, and the results are used only if all
// configs are equal. resume.h then loads the initial state.
// Blocking: AgreeOnRun, which all ranks call together; ApplySettings reads files. Threads: one per rank.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/engine/current_instruction.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/stream.h"
#include "tools/train/rank_setup.h"
#include "tools/train/training_sinks.h"

namespace hadal {

// The devices and communicators of a rank. Separate from AgreedRun: they must live until a failed job is aborted.
struct RunDevice {
  std::function<void(const std::string& what)> hung;         // see DeviceRequest; the first, to outlive the others
  std::unique_ptr<Device> device;                            // null: the CPU
  std::unique_ptr<NcclLibrary> nccl;                         // null: ranks exchange through host memory
  std::unique_ptr<NcclCommunicator> communicator;            // null if nccl is null
  std::atomic<const CurrentInstruction*> current = nullptr;  // the trainer's while it runs; `hung` reads it
};

struct RunLayout {
  ModelPlan plan;           // rank 0's, used by all ranks
  RankResources resources;  // the memory limit of a rank, and how messages travel
  PipelineLayout pipeline;  // of this rank's replica, with recomputation chosen so that it fits in memory
  Stream stream;            // on the rank's device, or on the CPU
};

struct AgreedRun {
  RunLayout layout;
  std::string resume;                      // request of this attempt: of ResumeOfThisAttempt (resume.h)
  int64_t applied_step = -1;               // of AppliedStep (resume.h)
  std::optional<std::string> predecessor;  // TrainingCheckpointsOptions::predecessor
  std::vector<std::string> hosts;          // [ranks]
};

// Compares all ranks, applies the common settings, plans the pipeline and connects NCCL if it is used. Prints notices
// for the user. `device` and `prepared` must outlive the result.
// Errors: those of `prepared` on any rank, of AgreeOnSettings, LayOutRun, NCCL and Communicator::Wait.
absl::StatusOr<AgreedRun> AgreeOnRun(const TrainArguments& arguments, absl::StatusOr<PreparedRun>& prepared,
                                     World& world, Collectives& collectives, RunDevice& device, TrainingSinks& sinks);

// Plans the pipeline for rank `rank`: the memory limit of a rank, and a partition of the model in which every rank's
// part fits. `ranks`: the records of all ranks; `common`: the result of AgreeOnSettings. Pure.
// Errors: ResourceExhausted if a rank would have no memory; those of MakeFittingLayout; InvalidArgument if the model
// cannot be partitioned as configured. They name the file or argument that set a field.
absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, const TrainOptions& options,
                                    std::span<const RankSetup> ranks, const CommonSettings& common, int rank,
                                    const Stream& stream);

// Returns for each parameter whether one of the patterns (optimizer.frozen: shell globs) matches its name; empty
// without patterns. Pure.
// Errors: InvalidArgument if a pattern matches no name (with the nearest name or module) or nothing is left to train.
absl::StatusOr<std::vector<bool>> FrozenParameters(const ModelPlan& plan, const std::vector<std::string>& patterns);

// Applies the common settings on this rank: selects the instruction set, and verifies all bytes of its corpora if
// common.reads_all[rank].
// Errors: those of Corpus::Open.
absl::Status ApplySettings(const CommonSettings& common, int rank, PreparedRun& prepared);

}  // namespace hadal
