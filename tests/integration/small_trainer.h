// Trainers of one rank that save into one directory, on the CPU or on a device: what the tests of whole runs on devices
// share.
#pragma once

#include "gtest/gtest.h"
#include "pipeline/trainer.h"
#include "runtime/storage.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/temporary_directory.h"

namespace hadal::testing {

// A small corpus of random sentence pairs, and two steps of a 2L-2L model that may train on it.
inline constexpr int kSmallVocabulary = 61;
Corpus SmallCorpus();
RunSpec SmallRun(ResidualMethod method, int d_model = 32);
// Of speech: masked frames, lengths that end inside and at a convolution's stride.
RunSpec SmallSpeechRun(ResidualMethod method);

// What trainers have told.
class TrainerRecord final : public MetricsSink {
 public:
  void OnStep(const StepMetrics& metrics) override { losses.push_back(metrics.loss); }
  void OnDepth(const DepthMetrics& /*metrics*/) override { ++depth_records; }
  std::vector<double> losses;
  int depth_records = 0;
};

class SmallTrainerTest : public ::testing::Test {
 protected:
  // `device_storage`: what products on a device read and write.
  explicit SmallTrainerTest(Storage device_storage);

  // To step `steps`, from `checkpoint` unless that is empty. `device` null: the CPU, in fp32.
  absl::StatusOr<TrainingOutcome> Train(Device* device, int steps, const std::string& checkpoint,
                                        TrainerRecord& record);
  // Two steps, then, from their checkpoint, two more.
  TrainerRecord TrainInTwo(Device* first, Device* second);

  Storage device_storage_;
  Corpus corpus_;
  TemporaryDirectory directory_;
  TrainOptions options_;  // of SmallRun(kDeepNorm)
};

}  // namespace hadal::testing
