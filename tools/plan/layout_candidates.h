// Lists the layouts among which `hadal plan --machine` searches: all combinations of what the user has not set.
//
//   stages, replicas   stages · replicas = devices: all are used. Replicas fill nodes evenly (a multiple or a divisor
//                      of the devices per node; with pipeline.placement = stages_together, stages do), unless stages
//                      or replicas are kept
//   chunks, schedule   1, 2, 3, 4, 6, 8 chunks; with several the interleaved schedules, with one the others. Those that
//                      split the backward need several stages; zb_h1 and interleaved_zb, which keep several weight
//                      halves pending, are combined with no recomputation only
//   micro-batches      1/8 to 8 times the config's tokens, none smaller than the longest sentence that fits now. The
//                      tokens of a step remain the config's: of half as large micro-batches there are twice as many
//   recompute          as little as the memory requires: the search finds it
//   sharding           of the optimizer's state over replicas, or none
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/options/train_options.h"
#include "tools/plan/layout_prediction.h"
#include "tools/plan/step_costs.h"

namespace hadal {

// The fields that the user has set: they are as in TrainOptions. A `pipeline.split`, `pipeline.placement` and all other
// fields are always kept.
struct KeptFields {
  bool stages = false, replicas = false, chunks = false, schedule = false, recompute_every = false,
       optimizer_sharding = false;
  bool batch = false;  // also the size of micro-batches
  // > 0: the layouts of an elastic job, on at most so many ranks. Replicas: those with which batch.sum_groups /
  // replicas is a power of two, or powers of two if it is 0. Stages: up to 31 numbers for each.
  int most_ranks = 0;

  static constexpr bool KeptFields::*kAll[] = {
      &KeptFields::stages,          &KeptFields::replicas,           &KeptFields::chunks, &KeptFields::schedule,
      &KeptFields::recompute_every, &KeptFields::optimizer_sharding, &KeptFields::batch};
};

// With recomputation that the search is to find, recompute_every is kAnyLength.
inline constexpr int32_t kAnyLength = -1;
// The most candidates for each pair of stages and replicas, at any depth: 7 sizes of micro-batches, 19 combinations of
// chunks and schedule, 2 of sharding.
inline constexpr int kMostCandidatesOfAGrid = 7 * 19 * 2;
std::vector<LayoutPrediction> LayoutCandidates(const ModelPlan& model, const TrainOptions& options,
                                               const Machine& machine, const KeptFields& kept);

// "pipeline.stages = 4": one of the fields with its value.
std::string KeptText(bool KeptFields::*field, const TrainOptions& options);
// All fields that are kept, "pipeline.stages = 4, pipeline.split, pipeline.schedule = 1f1b"; "" if none is.
std::string KeptText(const KeptFields& kept, const TrainOptions& options);

}  // namespace hadal
