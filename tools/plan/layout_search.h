// Searches for the fastest layout of a run on a machine: stages, chunks, replicas, micro-batch, activation
// recompute, optimizer sharding, schedule. layout_candidates.h lists the candidates: what the user has set is kept.
//
// How: best-first search. A candidate's first lower bound is its share of the work; when it reaches the head of the
// queue, it gets the bound of its stages as they would be cut (layout_bounds.h). When it reaches the head again, the
// stages of one replica are laid out (layout_bounds.h), and if all fit it is replayed (layout_prediction.h). If it
// recomputes, another cut is taken to gain at most 1% and twice what its busiest stage works more than the mean; at the
// head again it gets that cut (memory_fit.h). At the head once more, now with the smallest time of all, it gets `hadal
// plan`'s report (plan_report.h), for which all ranks are laid out; if they fit, it is listed. So most candidates are
// never laid out. Apart from the assumed gain of another cut the result is the same as trying them all (tests compare);
// its bytes are those of `hadal plan`.
// Threads: pure; the stages of a layout are laid out in parallel (memory_fit.h). CPU time for 2,500 sublayers: 2 to
// 12 s for 64 to 512 devices, 16 to 27 s for 8 to 32, most of it for the choice of what is recomputed; longer if
// nothing fits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/options/train_options.h"
#include "tools/plan/layout_candidates.h"
#include "tools/plan/layout_prediction.h"
#include "tools/plan/plan_report.h"
#include "tools/plan/step_costs.h"

namespace hadal {

struct SearchOptions {
  int top = 5;  // number of layouts listed
  KeptFields kept;
};

struct LayoutSearch {
  std::vector<PlanReport> best;  // fastest first, with predictions; they differ in more than schedule and sharding
  int64_t candidates = 0;
  int64_t replayed = 0;
  int64_t too_large = 0;        // candidates that did not fit
  double roofline_seconds = 0;  // lower bound: all devices busy with the cheapest sublayers, nothing else
  double perfect_seconds = 0;   // lower bound: the model's operations at the devices' peak
  double operations = 0;        // of a step, without recomputation
};

// `threads`: of each rank of the planned run, if it computes on CPUs; buffers depend on it.
// Errors: ResourceExhausted if nothing fits, with the layouts that need the fewest bytes, the number of nodes that
// would suffice, and the kept fields without which a layout fits; InvalidArgument if the devices cannot be divided over
// this model, with the kept fields without which they can, or if the run's precision is not the machine's; the costs',
// if they have none of the micro-batches.
absl::StatusOr<LayoutSearch> SearchLayouts(const TrainOptions& options, const Machine& machine, const StepCosts& costs,
                                           int threads, const SearchOptions& search);

// The search that LayoutSearchToText and LayoutSearchToJson describe.
struct SearchText {
  const TrainOptions& options;
  const Machine& machine;
  const StepCosts& costs;
  KeptFields kept;
};
std::string LayoutSearchToText(const LayoutSearch& search, const SearchText& text);
// The plan of the best layout, as PlanToJson prints it, with an object "search" of what was searched and found.
std::string LayoutSearchToJson(const LayoutSearch& search, const SearchText& text);
// "--set pipeline.stages=8 --set …": the arguments that make the searched config train with this layout. They need no
// quoting in a shell.
std::string LayoutArguments(const PlanReport& report);
// Operations of one step's forward and backward pass; a multiply-add is two.
double StepOperations(const ModelPlan& model, const BatchOptions& batch);

}  // namespace hadal
