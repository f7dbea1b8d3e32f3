#include "tests/integration/small_trainer.h"

#include "runtime/comm/in_process_communicator.h"
#include "runtime/status_macros.h"

namespace hadal::testing {

Corpus SmallCorpus() { return RandomCorpus(60, 9, kSmallVocabulary, 5); }

RunSpec SmallRun(ResidualMethod method, int d_model) {
  RunSpec spec;
  // Few heads: attention is most of what an emulated device takes.
  spec.model = SmallModel(
      method,
      {.encoder_layers = 2, .decoder_layers = 2, .d_model = d_model, .heads = 2, .vocabulary = kSmallVocabulary});
  spec.batch = {.micro_batches = 2, .source_tokens = 20, .target_tokens = 20};
  spec.optimizer.clip_norm = 0.5;
  spec.steps = 2;
  return spec;
}

RunSpec SmallSpeechRun(ResidualMethod method) {
  RunSpec spec = SmallRun(method);
  spec.model.source_vocabulary = 0;
  spec.model.frame_width = 6;
  spec.model.front_end_channels = 20;
  spec.spec_augment = {.frequency_masks = 1, .frequency_width = 3, .time_masks = 2, .time_width = 8};
  return spec;
}

SmallTrainerTest::SmallTrainerTest(Storage device_storage) : device_storage_(device_storage), corpus_(SmallCorpus()) {
  const RunSpec spec = SmallRun(ResidualMethod::kDeepNorm);
  options_.model = spec.model;
  options_.batch = spec.batch;
  options_.optimizer = spec.optimizer;
  options_.rate.warmup_updates = 4;
  options_.depth.probe_tokens = 16;
}

absl::StatusOr<TrainingOutcome> SmallTrainerTest::Train(Device* device, int steps, const std::string& checkpoint,
                                                        TrainerRecord& record) {
  TrainOptions options = options_;
  options.stop.steps = steps;
  options.run_directory = directory_ / (checkpoint.empty() ? "first" : "second");
  InProcessWorld world(1);
  absl::StatusOr<TrainingOutcome> outcome;
  HADAL_RETURN_IF_ERROR(WithTrainer(
      options,
      {.communicator = world.communicator(0),
       .stream = device == nullptr ? Stream::Cpu(1) : Stream::On(*device, 1),
       .train = corpus_,
       .sink = record},
      [&](Trainer& trainer) -> absl::Status {
        if (!checkpoint.empty()) HADAL_RETURN_IF_ERROR(trainer.Resume(FindNamed(checkpoint)));
        outcome = trainer.Run();
        return outcome.status();
      },
      device == nullptr ? Storage::kFloat32 : device_storage_));
  return outcome;
}

TrainerRecord SmallTrainerTest::TrainInTwo(Device* first, Device* second) {
  TrainerRecord record;
  const absl::StatusOr<TrainingOutcome> saved = Train(first, 2, "", record);
  EXPECT_TRUE(saved.ok()) << saved.status();
  if (!saved.ok()) return record;
  const absl::StatusOr<TrainingOutcome> resumed = Train(second, 4, saved->checkpoint, record);
  EXPECT_TRUE(resumed.ok()) << resumed.status();
  return record;
}

}  // namespace hadal::testing
