// RunSummary: where a run's time went, as mean seconds per steady step, by cause and by rank.
//
// Each part is the mean over the stages of the pipeline, where a stage counts as the mean over its replicas. The parts
// sum to the step:
//   step = compute + optimizer + checkpoint + core wait + bubble + imbalance + exposed transfers + communication +
//          unexplained
//
//   compute            forward + recompute + backward, as measured, without core wait. After CompareWithCosts these
//                      three are the costs' predictions, and compute also includes slower
//   slower             compute that exceeds the prediction of a profile or a machine's costs; negative if it was faster
//   optimizer          clearing gradients and the update, without core wait
//   checkpoint         just before the update: copying what a checkpoint that is being written has not read yet, and
//                      waiting for its reads. What checkpoints take between steps is in outside_seconds
//   core wait          time in compute and optimizer without a CPU core, because other processes or ranks used it
//   bubble, imbalance  idle time in a replay of the schedule with the measured compute per stage (step_breakdown.h).
//                      If ranks waited less than the replay says, the two share the measured wait
//   exposed transfers  the remaining wait: transfers that compute did not hide, jitter between micro-batches
//   communication      as measured, without the idle time that the replay counts as wait: while a sender waits for
//                      space at its neighbour, and while a rank waits in the tail for the last backward of others
//   unexplained        the step minus everything measured
// The step's time is rank 0's. Other ranks may have begun the step while rank 0 still wrote the results of the last
// step, and then have waited for rank 0. If the parts therefore exceed the step, exposed transfers and then
// communication are reduced by the difference.
// Two parts can be negative: slower, and imbalance (if unequal stages fit the schedule better than equal ones would).
// Steady steps: steps with recorded stage times (long runs record only some, evenly spaced), except the first, which
// pages memory in, and steps whose update was skipped.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/output/run_record.h"
#include "tools/plan/cost_files.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {

// The parts of a step in seconds. kTimeParts has their names, in the same order.
struct TimeParts {
  double forward = 0, recompute = 0, backward = 0, slower = 0, optimizer = 0, core_wait = 0, checkpoint = 0;
  double bubble = 0, imbalance = 0, exposed_transfers = 0;
  double communication = 0, unexplained = 0;

  double sum() const {
    return forward + recompute + backward + slower + optimizer + core_wait + checkpoint + bubble + imbalance +
           exposed_transfers + communication + unexplained;
  }
};

struct TimePart {
  const char* name;
  double TimeParts::*seconds;
};
inline constexpr TimePart kTimeParts[] = {
    {"forward", &TimeParts::forward},
    {"recompute", &TimeParts::recompute},
    {"backward", &TimeParts::backward},
    {"compute slower than profiled", &TimeParts::slower},
    {"optimizer", &TimeParts::optimizer},
    {"waiting for a core", &TimeParts::core_wait},
    {"checkpoint", &TimeParts::checkpoint},
    {"bubble", &TimeParts::bubble},
    {"imbalance", &TimeParts::imbalance},
    {"exposed transfers", &TimeParts::exposed_transfers},
    {"communication", &TimeParts::communication},
    {"unexplained", &TimeParts::unexplained},
};

struct RunSummary {
  int64_t steps = 0;                // number of steps averaged
  double step_seconds = 0;          // mean
  double tokens = 0;                // target tokens per step, mean
  double outside_seconds = 0;       // per step, between steps: data, metrics, validation, checkpoints; 0 if unknown
  std::vector<StageTimes> stages;   // [stages] mean; empty if not recorded
  std::vector<StageMemory> memory;  // [stages] of the last step that has it; or empty
  std::optional<TimeParts> parts;   // mean over the stages; absent without stage times
  bool wait_is_split = false;       // false: all waiting is in exposed_transfers (the config could not be read)
  int slowest_stage = -1;           // the stage that computes longest; -1 if not recorded
  double slowest_excess = 0;        // that stage's compute / the stages' mean, minus 1
  // [stages] compute without core wait / what the costs predict, minus 1; empty without CompareWithCosts.
  std::vector<double> beyond_costs;

  double tokens_per_second() const { return step_seconds > 0 ? tokens / step_seconds : 0; }
};

// Errors: those of ReplaySchedule.
absl::StatusOr<RunSummary> Summarize(const RunRecord& run);

// If a stage computes at least a tenth longer than the mean of the others, and imbalance takes a hundredth of the step
// or more, returns a sentence with the stage, the remedy and, if known, the reason; else "". Waiting for such a stage
// counts as imbalance if the stage is slower on average, and as exposed transfers if it is slower only at some
// micro-batches.
std::string DescribeSlowStage(const RunSummary& summary);

// A stage's compute time in a step as predicted from a profile or a machine's description: at full speed, with
// nothing else running.
struct ComputeCosts {
  double forward = 0, recompute = 0, backward = 0;  // seconds, mean over the replicas

  double sum() const { return forward + recompute + backward; }
};

// Splits the compute in summary.parts into what `costs` ([stages]) predict and the part "slower", and sets
// summary.beyond_costs. Does nothing if the summary has no stage times, or those of another number of stages.
void CompareWithCosts(const std::vector<ComputeCosts>& costs, RunSummary& summary);

// The prediction of `hadal plan` for a finished run's own config and ranks, from a profile or a machine's
// description, beside what was measured. The prediction assumes that micro-batches are as full as the profile's,
// which is so if run and profile read the same corpus.
// `hadal train --profile FILE --machine FILE` stores both files in the run directory, so that the report finds them.
struct RunPrediction {
  LayoutPrediction layout;
  std::string costs;            // the source of the costs
  int64_t predicted_bytes = 0;  // memory of the rank that needs the most
  int64_t measured_bytes = 0;   // the same, as measured; 0: not recorded
  double measured_seconds = 0;  // per step
  double model_tflops = 0;      // TFLOP/s of all ranks: operations of the model, without recomputation
  double utilisation = 0;       // the same as a share of the ranks' peak in matrix products (StepCosts::peak_flops)
  double roofline_share = 0;    // predicted seconds of all sublayers / ranks, as a share of the measured step
  // [S] per step at full speed: a profile's seconds divided by the ratio of the run's threads to the profile's.
  std::vector<ComputeCosts> compute;

  double StepError() const { return layout.step_seconds / measured_seconds - 1; }
};

// Errors: those of reading the files and the run's config; InvalidArgument if the profile is of another model, or
// nothing gives the sizes of the vocabularies; NotFound if the costs are of other micro-batches.
absl::StatusOr<RunPrediction> PredictRun(const RunRecord& run, const RunSummary& summary, const CostFiles& files);

}  // namespace hadal
