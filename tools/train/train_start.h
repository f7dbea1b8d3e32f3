// Starts a training run on all ranks: compares their preparations, plans the pipeline, and loads the initial state.
//
//   AgreeOnRun         each rank fills its RankSetup; all gather them; AgreeOnSettings computes the common settings;
//                      each rank applies them; the ranks vote and lay out the pipeline
//   LoadInitialState   rank 0 chooses a checkpoint and broadcasts its manifest; each rank loads and verifies its part
// One gather suffices for AgreeOnRun: each rank opens its GPU for the model of its own config, and the results are
// used only if all configs are equal. Choosing the checkpoint needs a second exchange: damage may be found only while
// loading, and all ranks then try the next older checkpoint.
// Blocking: collective calls, by all ranks together. Threads: one per rank.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/world.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/engine/current_instruction.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/trainer.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/stream.h"
#include "tools/train/rank_setup.h"
#include "tools/train/train_preparation.h"
#include "tools/train/training_sinks.h"

namespace hadal {

// The devices and communicators of a rank. Separate from AgreedRun, because they must live until a failed job has been
// aborted.
struct RunDevice {
  std::function<void(const std::string& what)> hung;         // see DeviceRequest; outlives the others
  std::unique_ptr<Device> device;                            // null: the CPU
  std::unique_ptr<NcclLibrary> nccl;                         // null: ranks exchange through host memory
  std::unique_ptr<NcclCommunicator> communicator;            // null if nccl is null
  std::atomic<const CurrentInstruction*> current = nullptr;  // the trainer's while it runs, for `hung`
};

struct RunLayout {
  ModelPlan plan;           // rank 0's, used by all ranks
  RankResources resources;  // memory and cores of the ranks
  PipelineLayout pipeline;  // of this rank's replica, with recomputation chosen so that it fits in memory
  Stream stream;            // on the rank's device, or on the CPU
};

struct AgreedRun {
  RunLayout layout;
  std::string resume;                      // effective --resume of this attempt
  std::optional<std::string> predecessor;  // TrainingCheckpointsOptions::predecessor
  std::vector<std::string> hosts;          // [ranks]
};

// Compares all ranks, applies the common settings and plans the pipeline. Prints notices for the user. `device` and
// `prepared` must outlive the result.
// Errors: those of `prepared` on any rank, of AgreeOnSettings, LayOutRun, NCCL and Communicator::Wait.
absl::StatusOr<AgreedRun> AgreeOnRun(const TrainArguments& arguments, absl::StatusOr<PreparedRun>& prepared,
                                     World& world, Collectives& collectives, RunDevice& device, TrainingSinks& sinks);

// Plans the pipeline for rank `rank`: the memory limit of a rank, and a partition of the model in which every rank's
// part fits. `ranks`: of all ranks; `common`: the result of AgreeOnSettings. Pure.
// Errors: ResourceExhausted if a rank would have no memory; those of MakeFittingLayout; InvalidArgument if the model
// cannot be partitioned as configured. Both name the file or argument that set a field.
absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, const TrainOptions& options,
                                    std::span<const RankSetup> ranks, const CommonSettings& common, int rank,
                                    const Stream& stream);

// Applies the common settings on this rank: selects the instruction set, and verifies all of its corpora if it must.
// Errors: those of UseInstructionSets and Corpus::Open.
absl::Status ApplySettings(const CommonSettings& common, int rank, PreparedRun& prepared);

// Rank 0: returns the checkpoint to resume from: the newest before `before_step`, or the one that `resume` names. If
// settings have changed since, refuses it unless --accept-changes is given, and then prints the differences. The
// message suggests that option only if `model`, the run's plan, still has the checkpoint's parameters.
// Errors: NotFound if "auto" finds no checkpoint; InvalidArgument, with the fields, if settings have changed, or if
// both --resume CHECKPOINT and --init-from are given; those of FindLatest and of reading a named checkpoint.
absl::StatusOr<FoundCheckpoint> ChooseResume(const TrainArguments& arguments, const std::string& resume,
                                             int64_t before_step, const config::RunConfig& config,
                                             const std::vector<CheckpointParameter>& model, TrainingSinks& sinks);

// Loads the initial state into `trainer`: a checkpoint of this run (--resume) or another run's weights (--init-from);
// otherwise leaves it at step 0. `resume`: AgreedRun::resume.
// Errors: on all ranks those of ChooseResume on rank 0, and InvalidArgument if model or vocabularies differ from the
// checkpoint's, or if --init-from is of --run-dir itself; errors of loading and of Communicator::Wait.
absl::Status LoadInitialState(const TrainArguments& arguments, const std::string& resume, const PreparedRun& run,
                              int rank, TrainingSinks& sinks, Trainer& trainer);

}  // namespace hadal
