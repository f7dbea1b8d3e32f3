// The instruments that see the depth, on one rank: when to look (recording_schedule.h), at what (depth_statistics.h,
// depth_probe.h, pipeline/parameter_update.h), and one exchange that brings it together (runtime/depth_metrics.h says
// what each number is).
//
//   BeforeStep(s)   recording: the engine's observer and the update's measurement are switched on
//   AfterStep(s)    recording: probe forward, all-gather, DepthMetrics
// They change no bit of training, and their numbers are the same bits for every number of stages and threads, every
// schedule, with and without activation checkpointing (replicas round sums in another order, as everywhere).
// Threads: one a rank; Begin and AfterStep are collective and blocking.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/engine.h"
#include "pipeline/instruments/depth_probe.h"
#include "pipeline/instruments/depth_statistics.h"
#include "pipeline/train_options.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/depth_metrics.h"

namespace hadal {

class DepthRecorder {
 public:
  // `engine`, `plan` and `pipeline` must outlive it. Errors: those of the probe.
  static absl::StatusOr<std::unique_ptr<DepthRecorder>> Create(const TrainOptions& options, const ModelPlan& plan,
                                                               const PipelinePlan& pipeline, const Corpus& corpus,
                                                               Engine& engine, Communicator& world,
                                                               absl::Duration timeout);

  // Before the first step of this process. Returns what goes unrecorded and why, "" where nothing does; the same on
  // every rank.
  // Errors: those of transfers.
  absl::StatusOr<std::string> Begin(int64_t first_step);
  // Switches on for the step `step` what it is to be seen with.
  void BeforeStep(int64_t step, UpdateSettings& settings);
  // `update`: updates applied so far. nullopt: not a recording step.
  absl::StatusOr<std::optional<DepthMetrics>> AfterStep(int64_t step, int64_t update, const StepResult& result);

 private:
  DepthRecorder(const TrainOptions& options, const ModelPlan& plan, const PipelinePlan& pipeline, Engine& engine,
                Communicator& world, absl::Duration timeout);

  // Sums of a sublayer that add up over ranks: everything is on one rank of a pipeline, replicas have seen different
  // micro-batches.
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
