// Searches for the fastest layout of a run on a machine: stages, chunks, replicas, micro-batch, activation
// recompute, optimizer sharding, schedule.
//
// The tokens of a step remain the config's: with micro-batches of half the tokens there are twice as many. All devices
// are used.
//
//   candidates   stages · replicas = devices, with replicas filling nodes evenly (a multiple or a divisor of the
//                devices per node); chunks 1, 2, 3, 4, 6, 8; micro-batches 1/8 to 8 times the config's, none smaller
//                than the longest sentence kept today; recompute off, or every k sublayers, with the k of the
//                fewest estimated bytes; moments sharded or not; gpipe, 1f1b, interleaved_1f1b
// How: best-first search. A candidate's first lower bound is the devices' share of its work, M/R · C / S. When it
// reaches the head of the queue, the bound becomes that of the stages as they would be cut,
//   max over stages s of   m · c_s + Σ_{t<s} (first chunk of t + 2 messages)
// because the first micro-batch passes the earlier stages before s starts, and the last one returns through their first
// chunks; plus the update and the gathering of weights for stages of equal size. When the candidate reaches the head
// again, it is laid out, checked and replayed (layout_prediction.h). Once a candidate's exact time is the smallest of
// all bounds, it is the best. So most candidates are never laid out, yet the answer is that of trying them all (the
// tests do).
// Memory: a candidate that an estimate (30% on the safe side) puts above the device's memory is dropped; the others are
// laid out.
// Threads: pure. Time: a few seconds for 512 devices and 2,500 sublayers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {

struct SearchOptions {
  int top = 5;  // number of layouts wanted
  bool vary_micro_batch = true;
};

struct LayoutSearch {
  std::vector<LayoutPrediction> best;  // fastest first; they differ in more than schedule and sharding
  int64_t candidates = 0;
  int64_t replayed = 0;
  int64_t too_large = 0;        // candidates that did not fit
  double roofline_seconds = 0;  // lower bound: all devices busy with the cheapest sublayers, nothing else
  double perfect_seconds = 0;   // lower bound: the model's operations at the devices' peak
  double operations = 0;        // of a step, without recomputation
};

// Errors: ResourceExhausted if nothing fits, with the layout that needs the fewest bytes and the number of nodes that
// would suffice; InvalidArgument if the devices cannot be divided over this model; the costs', if they know none of the
// micro-batches.
absl::StatusOr<LayoutSearch> SearchLayouts(const ModelPlan& model, const TrainOptions& options, const Machine& machine,
                                           const StepCosts& costs, int threads, const SearchOptions& search);

// What `hadal plan --machine` prints about.
struct SearchText {
  const ModelPlan& model;
  const TrainOptions& options;
  const Machine& machine;
  const StepCosts& costs;
};
std::string LayoutSearchToText(const LayoutSearch& search, const SearchText& text);
// "--set pipeline.stages=8 --set …": the arguments that make `options`, the searched config, train with this layout.
// They need no quoting in a shell.
std::string LayoutArguments(const LayoutPrediction& layout, const TrainOptions& options);
std::string LayoutSearchToJson(const LayoutSearch& search, const SearchText& text);

// Lists every candidate of the search, for tests and for counting.
std::vector<LayoutPrediction> LayoutCandidates(const ModelPlan& model, const TrainOptions& options,
                                               const Machine& machine, const SearchOptions& search);

// Operations of one step's forward and backward pass; a multiply-add is two.
double StepOperations(const ModelPlan& model, const BatchOptions& batch);

}  // namespace hadal
