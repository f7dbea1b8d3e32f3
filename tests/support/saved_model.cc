#include "tests/support/saved_model.h"

#include <memory>

#include "layers/parameter_store.h"
#include "pipeline/checkpoint/training_checkpoints.h"
#include "pipeline/exchange/parameter_broadcast.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/compute_thread.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);
constexpr uint64_t kSeed = 7;

absl::Status SaveOnRank(const SavedModel& saved, const std::string& run_directory, Communicator& communicator) {
  PrepareComputeThread();
  const ModelPlan plan = ModelPlan::Make(saved.model);
  const Stream stream = Stream::Cpu(1);
  HADAL_ASSIGN_OR_RETURN(const PipelineLayout pipeline,
                         MakePipelineLayout(plan, {.micro_batches = 1}, {}, saved.ranks));
  HADAL_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create({.plan = plan,
                                                                               .pipeline = pipeline,
                                                                               .stream = stream,
                                                                               .purpose = Purpose::kTraining,
                                                                               .world = communicator,
                                                                               .timeout = kTimeout}));
  HADAL_RETURN_IF_ERROR(
      InitializeParameters(pipeline, engine->stage().parameters(), kSeed, stream, communicator, kTimeout));
  HADAL_RETURN_IF_ERROR(engine->DistributeWeights());
  int64_t steps = 1;
  if (saved.train) {
    HADAL_ASSIGN_OR_RETURN(steps, saved.train(*engine));
  }
  Collectives collectives(communicator, kTimeout);
  TrainingCheckpoints checkpoints({.run_directory = run_directory,
                                   .config_text = saved.config,
                                   .attachments = saved.vocabularies,
                                   .inputs = saved.inputs},
                                  engine->state(), communicator.rank(), collectives, /*sink=*/nullptr,
                                  /*trace=*/nullptr);
  HADAL_RETURN_IF_ERROR(checkpoints.Claim(0));
  // As of a run begun with --init-from: what computes must go by growth_update().
  const int64_t before = steps * 3 / 4;
  TrainingProgress now{.step = steps, .update = steps - before, .updates_before = before};
  return checkpoints.SaveAtEnd(now, /*is_best=*/false);
}

}  // namespace

absl::Status SaveModel(const SavedModel& saved, const std::string& run_directory) {
  InProcessWorld world(saved.ranks);
  return world.Run([&](Communicator& communicator) { return SaveOnRank(saved, run_directory, communicator); });
}

Attachment VocabularyFile(const std::string& name, const Vocabulary& vocabulary) {
  return {.name = name + std::string(vocabulary.extension()), .contents = vocabulary.contents()};
}

}  // namespace hadal
