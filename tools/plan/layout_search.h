// The best layout of a run on a machine: stages, chunks, replicas, micro-batch, activation checkpointing, optimizer
// sharding, schedule.
//
// The step's tokens stay the config's: a micro-batch of half the tokens means twice as many of them. All devices work.
//
//   candidates   stages · replicas = devices, replicas filling nodes evenly (a multiple or a divisor of the devices a
//                node); chunks 1, 2, 3, 4, 6, 8; micro-batches 1/8 to 8 times the config's, none smaller than the
//                longest sentence kept today; checkpointing off, or every k sublayers, k by the fewest estimated bytes;
//                moments sharded or not; gpipe, 1f1b, interleaved_1f1b
// How: best first. A candidate's lower bound is first the devices' share of its work, M/R · C / S, and when its turn
// comes that of the stages as they would be cut,
//   max over stages s of   m · c_s + Σ_{t<s} (first chunk of t + 2 messages)
// since the first micro-batch comes down to s before it starts, and the last one goes back up through the first chunks
// behind it, plus the update and the weights' gathering by stages of equal size.
// When a candidate's turn comes again it is laid out, checked and replayed (layout_prediction.h); once its exact
// time is the smallest of all bounds it is the best there is. So most are never laid out, and none is lost: the answer
// is that of trying them all (the tests do).
// Memory: a candidate that an estimate (30% on the safe side) sees above the device's memory is dropped, the others are
// laid out.
// Threads: pure. Time: 512 devices and 2,500 sublayers, a few seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/plan/layout_prediction.h"

namespace hadal {

struct SearchOptions {
  int top = 5;  // layouts wanted
  bool vary_micro_batch = true;
};

struct LayoutSearch {
  std::vector<LayoutPrediction> best;  // by time; they differ in more than schedule and sharding
  int64_t candidates = 0;
  int64_t replayed = 0;
  int64_t too_large = 0;        // of them, did not fit
  double roofline_seconds = 0;  // bound: all devices busy with the cheapest sublayers there are, nothing else
  double perfect_seconds = 0;   // bound: the model's operations at the devices' peak
  double operations = 0;        // of a step, without recomputation
};

// Errors: ResourceExhausted where nothing fits, with the layout that needs the fewest bytes and the number of nodes
// that would do; InvalidArgument where devices cannot be divided over this model; the costs' where they know none of
// the micro-batches.
absl::StatusOr<LayoutSearch> SearchLayouts(const ModelPlan& model, const TrainOptions& options, const Machine& machine,
                                           const StepCosts& costs, int threads, const SearchOptions& search);

// What `hadal plan --machine` prints.
struct SearchText {
  const ModelPlan& model;
  const TrainOptions& options;
  const Machine& machine;
  const StepCosts& costs;
};
std::string LayoutSearchToText(const LayoutSearch& search, const SearchText& text);
// "--set pipeline.stages=8 --set …": what makes the searched config, `options`, train by this layout. Words that a
// shell leaves as they are.
std::string LayoutArguments(const LayoutPrediction& layout, const TrainOptions& options);
std::string LayoutSearchToJson(const LayoutSearch& search, const SearchText& text);

// Every candidate of the search, for tests and for counting.
std::vector<LayoutPrediction> LayoutCandidates(const ModelPlan& model, const TrainOptions& options,
                                               const Machine& machine, const SearchOptions& search);

// Operations of one step's forward and backward pass, two a multiply-add.
double StepOperations(const ModelPlan& model, const BatchOptions& batch);

}  // namespace hadal
