// Trains a small model for a few steps on ranks that are threads of this process, and hands back every bit of the
// outcome.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "layers/method_presets.h"
#include "pipeline/options/train_options.h"
#include "pipeline/trainer.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_communicator.h"
#include "runtime/data/corpus.h"
#include "runtime/data/input_masks.h"
#include "runtime/depth_metrics.h"
#include "runtime/device.h"
#include "runtime/storage.h"
#include "tests/support/random_corpus.h"
#include "tests/support/small_model.h"

namespace hadal::testing {

struct RunSpec {
  ModelOptions model;
  BatchOptions batch;
  PipelineOptions pipeline;
  OptimizerOptions optimizer;
  double learning_rate = 1e-3;
  std::vector<bool> frozen;  // [parameters], or empty
  int ranks = 1;             // stages × pipeline.replicas
  int threads = 1;
  std::function<std::unique_ptr<Device>(int rank)> make_device;  // the device of each rank; empty: the CPU
  Storage compute_storage = Storage::kFloat32;                   // what products read and write; bf16 needs a device
  // Connects the devices, of ranks that have one; empty: what ranks exchange goes through the host.
  std::function<absl::StatusOr<std::unique_ptr<NcclCommunicator>>(Device&, Communicator& world,
                                                                  std::span<const TransferGroup>)>
      connect_devices;
  int steps = 3;
  uint64_t seed = 11;
  SpecAugment spec_augment;  // of speech
  bool validate_every_step = false;
  int bleu_sentences = 12;  // translated at every step, where the pipeline has a decoder
  // The arena's regions lie apart, and its scratch and the gaps are filled with arena_poison.h's values before training
  // and before translation, every time. Nothing may write to a gap.
  bool poison = false;
  std::string depth_directory;  // record the depth at every step, the probe's file there; empty: do not
};

struct RunOutcome {
  std::vector<double> loss;                 // [steps] sums over target tokens
  std::vector<double> gradient_norm;        // [steps]
  std::vector<double> launches;             // [steps] on rank 0's device
  std::vector<double> validation_loss;      // [steps] with validate_every_step
  std::vector<double> bleu;                 // [steps] with a decoder
  std::vector<std::string> translations;    // [bleu_sentences] of the last step
  std::vector<std::string> samples;         // [steps] with a decoder: TranslatedValidation's
  std::vector<std::vector<float>> weights;  // [parameters] in plan order, as their owners hold them
  std::vector<std::vector<float>> first_moments;
  std::vector<int64_t> moment_bytes;  // [ranks] Adam's state
  std::vector<int64_t> arena_bytes;   // [ranks] what the engine allocated, on the device and on the host
  std::vector<DepthMetrics> depth;    // [steps] with depth_directory
};

// All replicas must end with the same weights.
RunOutcome Train(const RunSpec& spec, const Corpus& corpus);
// The same where the run may fail: the first error.
absl::StatusOr<RunOutcome> TryToTrain(const RunSpec& spec, const Corpus& corpus);
// One rank of such a run, over any transport; every rank of `communicator` calls it. The outcome has this rank's
// slices, zeros elsewhere.
RunOutcome TrainRank(const RunSpec& spec, const Corpus& corpus, Communicator& communicator);

// Runs use(trainer), on this thread, for one rank's trainer that saves into the options' run directory.
absl::Status WithTrainer(const TrainOptions& options, const TrainingSurroundings& surroundings,
                         const std::function<absl::Status(Trainer&)>& use, Storage compute_storage = Storage::kFloat32);

// "" when both are the same bits, else the first difference. Runs without a step are none to compare.
std::string FirstDifference(const RunOutcome& a, const RunOutcome& b);

}  // namespace hadal::testing
