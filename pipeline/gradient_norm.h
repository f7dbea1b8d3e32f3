// The global gradient norm, canonically: Σ over (parameter, slice) in plan order, in double, whoever owns the slices.
//
// Every rank of the grid sums the squares of the slices it owns (after the sums over uses and replicas); all ranks
// gather all sums and add them in the same order, so that the norm (and clipping, and the decision to skip a step) is
// the same bits for every layout with the same replicas. The sums a sublayer are the depth's gradient
// norms: they cost nothing more.
// Threads: the stream's; a slice is one thread's. Blocking: Compute (one all-gather). Every rank of the grid calls it
// at the same place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/sum_of_squares.h"
#include "layers/loss_head.h"
#include "pipeline/pipeline_plan.h"
#include "pipeline/stage_state.h"
#include "runtime/comm/collectives.h"
#include "runtime/stream.h"

namespace hadal {

// A rank's wish to end the run after this step; the strongest counts.
enum class StopVote : int32_t { kContinue, kOutOfTime, kRequested };

struct GlobalGradient {
  LossSums loss;  // of the step, all ranks
  StopVote stop = StopVote::kContinue;
  double norm = 0;  // of the whole gradient; not finite when any element is not
  bool finite = true;
  int32_t first_bad_parameter = -1;   // first in plan order whose gradient is not finite
  std::vector<float> sublayer_norms;  // [sublayers]; a tied table counts for its first use
};

class GradientNorm {
 public:
  GradientNorm(const ModelPlan& plan, const PipelinePlan& pipeline);

  // `loss`: this rank's sums (zeros but on the head's ranks). `vote` rides along: a step ends with one exchange.
  // `state`: the same in every call, bound. `collectives`: the world's.
  absl::StatusOr<GlobalGradient> Compute(const Stream& stream, const StageState& state, const LossSums& loss,
                                         StopVote vote, Collectives& collectives);

 private:
  void ListSlices(const StageState& state);

  const ModelPlan& plan_;
  std::vector<int> owner_;            // [slices of the model, ascending by (parameter, slice)] world rank
  std::vector<SquaresSlice> slices_;  // this rank's, in (parameter, slice) order
  std::vector<double> mine_;          // head values, then a sum a slice
};

}  // namespace hadal
