// How one model lies on S ranks: where it is cut, which instructions each rank runs, how many micro-batches each chunk holds.
//
// A pure function of (model plan, batch, pipeline options, ranks): every rank computes the same plan, `hadal plan` prints it, and
// the checker has proved its schedule before the first step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "layers/sublayer_context.h"
#include "pipeline/schedule.h"
#include "pipeline/train_options.h"

namespace hadal {

struct PipelinePlan {
  ScheduleShape shape;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  int outstanding_sends = 2;
  ActivationCapacity capacity;
  int32_t checkpoint_every = 0;
  std::vector<int32_t> borders;             // [G + 1]: global chunk g holds sublayers [borders[g], borders[g + 1])
  std::vector<double> costs;                // [sublayers] multiply-adds of a forward at full capacity
  std::vector<RankProgram> programs;        // [S]
  std::vector<std::vector<int>> peak_live;  // [S][v]
  double analytic_bubble = 0;               // share of a step that ranks idle, by replay with `costs`

  int32_t first_sublayer(int rank, int chunk) const { return borders[shape.GlobalChunk(rank, chunk)]; }
  int32_t last_sublayer(int rank, int chunk) const { return borders[shape.GlobalChunk(rank, chunk) + 1]; }
  // The rank that holds a sublayer.
  int RankOfSublayer(int32_t sublayer) const;
  // The rank that owns a parameter's state: its first use's.
  int OwnerOf(const ModelPlan& plan, int32_t parameter) const;
  // Multiply-adds of a rank's sublayers.
  double CostOfRank(int rank) const;
};

// Errors: InvalidArgument (more chunks than sublayers, bad split, 1f1b with chunks, …), what to try included; the checker's.
absl::StatusOr<PipelinePlan> MakePipelinePlan(const ModelPlan& plan, const BatchOptions& batch,
                                              const PipelineOptions& options, int ranks);

// Multiply-adds of each sublayer's forward for one micro-batch at full capacity, attention at `length` keys a query.
std::vector<double> SublayerCosts(const ModelPlan& plan, const ActivationCapacity& capacity, double length);

}  // namespace hadal
