// The global gradient norm, canonically: Σ over (parameter, slice) in plan order, in double, whoever owns the slices.
//
// Every rank sums the squares of its own slices; all ranks gather all sums and add them in the same order, so that the norm (and
// clipping, and the decision to skip a step) is the same bits for every layout. The sums a sublayer are the depth's gradient
// norms: they cost nothing more.
// Threads: the stream's; a slice is one thread's. Blocking: Compute (one all-gather). Every rank of the pipeline calls it at the same place.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/output_head.h"
#include "layers/parameter_store.h"
#include "pipeline/pipeline_plan.h"
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
  GradientNorm(const ModelPlan& plan, const PipelinePlan& pipeline, int rank);

  // `loss`: this rank's sums (zeros but on the head's rank). `vote` rides along: a step ends with one exchange.
  // `parameters`: the same in every call, bound.
  absl::StatusOr<GlobalGradient> Compute(const Stream& stream, const ParameterStore& parameters, const LossSums& loss,
                                         StopVote vote, Collectives& collectives);

 private:
  // This rank's slices in (parameter, slice) order.
  struct OwnSlice {
    ConstVector gradient;
    int64_t first = 0;  // elements in the slices before it
  };
  void ListSlices(const ParameterStore& parameters);
  void SumSlices(const Stream& stream);

  const ModelPlan& plan_;
  std::vector<int> owner_;  // [parameters]
  int rank_;
  std::vector<OwnSlice> slices_;
  std::vector<double> mine_;  // head values, then a sum a slice
};

// The gradient of an owned parameter: its own, or its first use's after TiedTables::ReduceGradients.
Vector OwnedGradient(const ParameterStore& parameters, int32_t parameter);

}  // namespace hadal
