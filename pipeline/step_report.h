// StepReport sends the metrics of each step to a run's sink: loss, learning rate, speed, remaining time, diagnoses
// (instruments/run_diagnosis.h). Every log_every_steps steps it adds a survey of the stages, gathered from all ranks:
// the time of each part of the step, and the memory. With many stages surveys are less frequent (IsSurveyedStep), so
// that the output of a long run does not grow with the number of stages.
// Threads: one. Blocking: at steps that survey the stages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/engine/engine.h"
#include "pipeline/instruments/run_diagnosis.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/grid_shape.h"
#include "pipeline/options/train_options.h"
#include "runtime/clock.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/corpus.h"
#include "runtime/data/sampling_order.h"
#include "runtime/metrics_sink.h"

namespace hadal {

// Returns the description of a run for MetricsSink::OnStart, before the first step. `threads`: CPU threads of one
// rank. `first_step`: the number of the next step, from 1.
RunInfo DescribeRun(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline, int threads,
                    int64_t first_step);

// Describes how many of the corpus's `samples` are left out because they are too long: "12 of 345 training samples
// (3.48%) are left out: …", with the settings that decide it; "" if `too_long` is 0. `corpus`: e.g. "training".
std::string DescribeLeftOut(std::string_view corpus, int64_t too_long, int64_t samples, const TrainOptions& options);

// Errors: InvalidArgument, with a remedy, if the share of training samples that are too long exceeds
// options.max_left_out.
absl::Status CheckLeftOut(int64_t too_long, int64_t samples, const TrainOptions& options);

struct StageSurvey {
  std::vector<StageTimes> times;    // [stages] the mean over the stage's replicas
  std::vector<StageMemory> memory;  // [stages] the maximum over the stage's replicas
};

// All-gathers the time of each part of a step and the memory of each stage over all ranks.
// `times`, `memory`: this rank's. The result is the same on every rank.
// Blocking: every rank of `collectives` must call it.  Errors: those of Communicator::Wait.
absl::StatusOr<StageSurvey> SurveyStages(const GridShape& grid, const StageTimes& times, const StageMemory& memory,
                                         Collectives& collectives);

inline constexpr int64_t kDenseSurveys = 100;
inline constexpr int64_t kSurveyedStages = 8;
// Whether the stages are surveyed after `step` steps: after every multiple of `every` up to the kDenseSurveys-th, then
// after every ⌈stages / kSurveyedStages⌉-th multiple.  REQUIRES: step ≥ 1, every ≥ 1, stages ≥ 1.
constexpr bool IsSurveyedStep(int64_t step, int64_t every, int64_t stages) {
  if (step % every != 0) return false;
  const int64_t survey = step / every;
  return survey <= kDenseSurveys || survey % ((stages + kSurveyedStages - 1) / kSurveyedStages) == 0;
}

class StepReport {
 public:
  // `sink`: on the rank that reports; null elsewhere. All references must outlive the object.
  StepReport(const TrainOptions& options, const ModelPlan& plan, const PipelineLayout& pipeline,
             Collectives& collectives, MetricsSink* sink)
      : options_(options), plan_(plan), pipeline_(pipeline), collectives_(collectives), sink_(sink) {
    if (sink != nullptr) diagnosis_.emplace(plan, options.rate);
  }

  // Starts or continues a run at the progress `from`. Speed and elapsed time count from this call.
  void Restart(const TrainingProgress& from);
  // Seconds since Restart.
  double Seconds() const { return session_.Seconds(); }

  // Reports step number progress.step, which has just ended; `batches` are the step's, of `corpus`.  Every rank calls
  // it. Errors: those of Communicator::Wait.
  absl::Status Send(Engine& engine, const StepResult& result, const TrainingProgress& progress, double learning_rate,
                    const Corpus& corpus, const StepBatches& batches);

 private:
  // Returns this process's memory. Held bytes are measured at most every ten seconds; the largest measurement so far
  // is returned.
  StageMemory MeasureMemory(Engine& engine);
  struct End {
    double seconds = 0;      // from now
    const char* limit = "";  // "steps", "epochs" or "minutes"
  };
  // Returns which limit is expected to end the run, and when; nullopt if the run has none.
  std::optional<End> FirstEnd(const TrainingProgress& progress) const;

  const TrainOptions& options_;
  const ModelPlan& plan_;
  const PipelineLayout& pipeline_;
  Collectives& collectives_;
  MetricsSink* const sink_;
  std::optional<RunDiagnosis> diagnosis_;  // where the sink is
  int64_t first_step_ = 0;
  double first_epochs_ = 0;
  Stopwatch session_;
  int64_t held_bytes_ = 0;
  Stopwatch since_measured_;
};

}  // namespace hadal
