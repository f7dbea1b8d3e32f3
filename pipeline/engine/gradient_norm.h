// The global gradient norm: Σ over (parameter, slice) in plan order, in double, whichever rank owns a slice.
//
// After gradients are summed over uses and replicas, every rank sums the squares of the slices it owns. An all-gather
// gives all ranks all sums, and each adds them in the same order. So the norm, gradient clipping and the decision to
// skip a step have the same bits for every layout with the same number of replicas. The norms per sublayer come from
// the same sums at no extra cost.
// Threads: the stream's; one thread sums one slice. Blocking: Compute (one all-gather), which every rank of the grid
// calls at the same place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/sum_of_squares.h"
#include "layers/output_head.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/comm/collectives.h"
#include "runtime/stream.h"

namespace hadal {

// A rank's vote on what follows this step; the highest value of all ranks counts.
enum class StepVote : int32_t {
  kContinue,
  kSave,       // rank 0: a checkpoint is due by the clock
  kOutOfTime,  // rank 0: stop.minutes
  kRequested,  // the run is to stop
  kLost,       // rank 0: the run directory belongs to another attempt by now
};

struct GlobalGradient {
  LossSums loss;  // of the step, all ranks
  StepVote vote = StepVote::kContinue;
  double norm = 0;  // of the whole gradient; not finite if any element is not
  bool finite = true;
  int32_t first_bad_parameter = -1;   // first in plan order whose gradient is not finite
  std::vector<float> sublayer_norms;  // [sublayers]; a tied table counts for its first use
};

class GradientNorm {
 public:
  GradientNorm(const ModelPlan& plan, const PipelineLayout& pipeline);

  // `loss`: this rank's sums (zeros except on the head's ranks). `vote` travels in the same all-gather, so that a step
  // ends with one exchange. `state`: the same in every call, bound. `collectives`: the world's.
  absl::StatusOr<GlobalGradient> Compute(const Stream& stream, const StageState& state, const LossSums& loss,
                                         StepVote vote, Collectives& collectives);

 private:
  void ListSlices(const StageState& state);

  const ModelPlan& plan_;
  std::vector<int> owner_;            // [slices of the model, ascending by (parameter, slice)] world rank of the owner
  std::vector<SquaresSlice> slices_;  // this rank's, in (parameter, slice) order
  std::vector<double> mine_;          // loss sums and vote, then one sum per slice
};

}  // namespace hadal
