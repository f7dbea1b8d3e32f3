// DepthRecorder runs the depth instruments on one rank: when to record (IsRecordingStep), what to measure
// (depth_statistics.h, DepthProbe, pipeline/engine/parameter_update.h), and one all-gather of the results
// (runtime/depth_metrics.h defines each number).
//
//   BeforeStep(s)   if s is a recording step: switches on the engine's observer and the measurement of the update
//   AfterStep(s)    if s is a recording step: runs the probe forward, all-gathers, returns DepthMetrics
// Recording changes no bit of training. Its numbers are bit-identical for every number of stages and threads, every
// schedule, with and without recomputation. With another number of replicas the sums over micro-batches are rounded
// differently: each replica adds its own in fp64.
// Threads: one per rank; Begin and AfterStep are collective and blocking.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/engine/engine.h"
#include "pipeline/instruments/depth_statistics.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/depth_metrics.h"
#include "runtime/safetensors.h"

namespace hadal {

// DepthProbe runs one fixed small batch forward without dropout, so that the measurements on it depend on the weights
// alone.
//
// The batch is the first sentences of the training corpus that fit a micro-batch of DepthOptions::probe_tokens per
// side. F(x, θ) is the decoder's output for the batch x with the weights θ, and ‖ΔF‖ = ‖F(x, θ) − F(x, θ_0)‖ its change
// since before the first update, when the weights were θ_0. The rank of the output head (of replica 0) stores F(x, θ_0)
// in RUN_DIR/depth_probe.safetensors, with a checksum, for a resumed run.
// Threads: one per rank. Calls that take an engine or collectives are collective and blocking.
class DepthProbe {
 public:
  // Errors: InvalidArgument if no sentence of the corpus fits a micro-batch.  REQUIRES: options.depth.probe_tokens > 0.
  static absl::StatusOr<DepthProbe> Create(const TrainOptions& options, const ModelPlan& plan, const Corpus& corpus);

  // Runs the forward with the current weights; statistics() then holds the sums of this rank's sublayers. `update`: all
  // updates of the weights so far, but at least 1, for BranchNorm's branch gain.
  absl::Status Run(Engine& engine, int64_t update);

  // Stores the last Run's output as F(x, θ_0). Errors: those of the file, the same on every rank (measuring can
  // continue without it).
  absl::Status KeepFirstOutput(Collectives& collectives);
  // Loads the F(x, θ_0) that an earlier attempt of this run stored. Errors, alike on all ranks: the file is missing,
  // damaged, or of another probe.
  absl::Status LoadFirstOutput(Engine& engine, Collectives& collectives);

  const DepthStatistics& statistics() const { return *statistics_; }
  // ‖F(x, θ) − F(x, θ_0)‖² of the last Run, summed over the rows, on the rank that keeps F(x, θ_0); elsewhere 0.
  double ChangeSquares() const;
  // Rows of F(x, θ_0) on the rank that keeps it; elsewhere 0.
  int64_t output_rows() const;

 private:
  DepthProbe(const ModelPlan& plan, std::string path) : plan_(&plan), path_(std::move(path)) {}
  // Whether this rank keeps F(x, θ_0): the output head's rank in replica 0.
  bool KeepsOutput(Engine& engine) const;
  absl::Status Write() const;
  absl::Status Read();
  SafetensorsMetadata Identity(const std::vector<float>& output) const;

  const ModelPlan* plan_;
  std::string path_;
  uint64_t seed_ = 0;
  std::vector<PackedBatch> batches_;  // [1]
  std::unique_ptr<DepthStatistics> statistics_;
  std::vector<float> first_output_;  // F(x, θ_0) [rows·d]; empty: not kept here, or not known
};

// Decides at which steps the instruments record: at all of the first steps, where deep models fail, then evenly spaced
// on a logarithmic axis.
// A pure function of the step, so a resumed run records at the same steps as an uninterrupted one.
// True for steps < dense_steps, and for those that are ⌈dense_steps·10^(k / per_decade)⌉ for a whole k ≥ 0 (none if
// per_decade is 0).  REQUIRES: step ≥ 0.
bool IsRecordingStep(const DepthOptions& options, int64_t step);

class DepthRecorder {
 public:
  // `engine`, `plan` and `pipeline` must outlive the object. Errors: those of the probe.
  static absl::StatusOr<std::unique_ptr<DepthRecorder>> Create(const TrainOptions& options, const ModelPlan& plan,
                                                               const PipelineLayout& pipeline, const Corpus& corpus,
                                                               Engine& engine, Communicator& world,
                                                               absl::Duration timeout);

  // Call before the first step of this process; `growth_update`: of TrainingProgress. Returns what will not be recorded
  // and why, "" if nothing; the same on every rank. Errors: those of Communicator::Wait.
  absl::StatusOr<std::string> Begin(int64_t first_step, int64_t growth_update);
  // Switches on the measurements of `step` (counted from 0), in the engine and in the step's `settings`.
  void BeforeStep(int64_t step, UpdateSettings& settings);
  // Call after the step, with its result, on every rank. `update`: updates applied in this run so far. `growth_update`:
  // all updates of the weights, TrainingProgress::growth_update, which sets BranchNorm's branch gain in the probe.
  // Returns nullopt if it was not a recording step. Errors: those of the probe's forward and of Communicator::Wait.
  absl::StatusOr<std::optional<DepthMetrics>> AfterStep(int64_t step, int64_t update, int64_t growth_update,
                                                        const StepResult& result);

 private:
  DepthRecorder(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline, Engine& engine,
                Communicator& world, absl::Duration timeout);

  // Sums of a sublayer that add up over ranks: within a pipeline one rank has them all, and replicas have seen
  // different micro-batches.
  struct SublayerSums;
  std::vector<double> Mine() const;
  static std::vector<SublayerSums> AddUp(const std::vector<std::vector<double>>& all, size_t sublayers);
  void Fill(const std::vector<SublayerSums>& sums, const StepResult& result, DepthMetrics& metrics) const;

  const DepthOptions options_;
  const ModelPlan& plan_;
  Engine& engine_;
  Collectives collectives_;
  std::vector<int32_t> own_sublayers_;
  DepthStatistics gradients_;
  std::optional<DepthProbe> probe_;
  bool knows_first_output_ = false;
  std::vector<UpdateSize> update_sizes_;
  bool recording_ = false;
};

}  // namespace hadal
