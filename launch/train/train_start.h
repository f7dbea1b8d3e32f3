// The start of a training run on all ranks: from what each has read by itself to a trainer that has loaded where the
// run begins.
//
//   StartTogether   each rank fills its StartFacts and all gather them; CompareStarts decides for all; each rank does
//                   its part, the ranks vote, and lay the run out
//   LoadStart       rank 0 chooses a checkpoint and broadcasts its manifest; each rank loads and verifies its part
// One gather is enough: a rank opens its GPU for the model of its own config, and the results only count once all
// configs are known to be the same. Rank 0's choice of a checkpoint is a second exchange, since ranks may refuse it
// only when they load it, and then go on to an older one.
// Blocking: all ranks call these together. Threads: one per rank.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launch/job/world.h"
#include "launch/train/start_facts.h"
#include "launch/train/train_preparation.h"
#include "launch/train/training_sinks.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/plan/pipeline_plan.h"
#include "pipeline/trainer.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/stream.h"

namespace hadal {

// What a rank computes on. A struct of its own, because it must live until a failed job has been aborted.
struct RunDevice {
  std::unique_ptr<Device> device;                  // null: the CPU
  std::unique_ptr<NcclLibrary> nccl;               // null: ranks exchange through host memory
  std::unique_ptr<NcclCommunicator> communicator;  // likewise
};

struct RunLayout {
  ModelPlan plan;           // rank 0's
  RankResources resources;  // what the ranks were found to have
  PipelinePlan pipeline;    // of this rank's replica, with the recomputation that fits
  Stream stream;            // on the rank's device, or on the CPU
};

struct RunStart {
  RunLayout layout;
  std::string resume;              // --resume, as it applies to this start
  std::vector<std::string> hosts;  // of all ranks
};

// Prints what there is to say to the user. `device` and `prepared` must outlive the result.
// Errors: those of `prepared` on any rank; CompareStarts', LayOutRun's; those of NCCL and of Communicator::Wait.
absl::StatusOr<RunStart> StartTogether(const TrainArguments& arguments, absl::StatusOr<PreparedRun>& prepared,
                                       World& world, Collectives& collectives, RunDevice& device, TrainingSinks& sinks);

// Lays the run out, as rank `rank` sees it: the memory that a rank may take, and the cut of the model such that every
// rank's part fits it. `ranks`: of all; `common`: what CompareStarts has made of them. Pure.
// Errors: ResourceExhausted if a rank would have no memory; MakeFittingPlan's; InvalidArgument if the pipeline cannot
// be cut as asked. Both with the file or argument that set a field.
absl::StatusOr<RunLayout> LayOutRun(const TrainArguments& arguments, const TrainOptions& options,
                                    std::span<const StartFacts> ranks, const CommonStart& common, int rank,
                                    const Stream& stream);

// This rank's part of what was decided for all: instruction set, corpora that it must read in full.
// Errors: UseInstructionSets', Corpus::Open's.
absl::Status ApplyStart(const CommonStart& common, int rank, PreparedRun& prepared);

// Rank 0's choice of the checkpoint to resume from, among those before `before_step`, or the one that `resume` names.
// Refuses one whose settings have changed, unless the user accepts the difference (--accept-changes), which is offered
// only where `model`, the run's, still has the checkpoint's parameters; prints a difference that was accepted.
// Errors: NotFound if "auto" finds none; InvalidArgument, with the fields, if settings have changed, or if a checkpoint
// to resume and another to begin from are named; those of FindLatest, and of reading a checkpoint that was named.
absl::StatusOr<FoundCheckpoint> ChooseResume(const TrainArguments& arguments, const std::string& resume,
                                             int64_t before_step, const config::RunConfig& config,
                                             const std::vector<CheckpointParameter>& model, TrainingSinks& sinks);

// Loads the run's start into `trainer`: a checkpoint of its own (--resume), another run's weights (--init-from), or
// nothing: step 0. `resume`: RunStart's.
// Errors: rank 0's of choosing, on all ranks: ChooseResume's, and InvalidArgument if model or vocabularies are not the
// checkpoint's; those of loading and of Communicator::Wait.
absl::Status LoadStart(const TrainArguments& arguments, const std::string& resume, const PreparedRun& run, int rank,
                       TrainingSinks& sinks, Trainer& trainer);

}  // namespace hadal
