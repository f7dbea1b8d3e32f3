// StepTail executes the end of a training step, after the backward of all micro-batches: it reduces gradients, applies
// the update and redistributes the weights.
//
//   ReduceTiedGradients → ReduceOverReplicas → ComputeNorm → Update → GatherOverReplicas → DistributeTiedWeights
// One method per tail instruction of the program (schedule.h); the program executor calls them in this order.
// On a device with replicas and a sharded optimizer, GatherOverReplicas also launches the update, round by round
// (slice_ownership.h), so that the first weights travel while the rest is updated. The time of the update's launches
// counts as the optimizer's, the rest of the method as communication.
// ComputeNorm also decides whether the update is applied, with the same result on every rank. Each method adds its time
// to StepResult::times.
// Threads: one per rank. Blocking: the methods that return a Status are collective; all ranks call them in the same
// order. Their errors are those of Communicator::Wait.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/sum_of_squares.h"
#include "layers/output_head.h"
#include "pipeline/engine/parameter_update.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/comm/collectives.h"
#include "runtime/metrics_sink.h"
#include "runtime/stream.h"

namespace hadal {

struct RankParts;  // engine.h

// A rank's vote on what follows this step; the highest value of all ranks counts.
enum class StepVote : int32_t {
  kContinue,
  kSave,       // rank 0: a checkpoint is due by the clock
  kOutOfTime,  // rank 0: stop.minutes
  kRequested,  // any rank: a stop was requested, for example by a signal
  kLost,       // rank 0: the run directory belongs to another attempt by now
};

// The facts of a step's gradient, the same on every rank.
struct GlobalGradient {
  LossSums loss;                        // of the step, all ranks
  StepVote vote = StepVote::kContinue;  // the highest of all ranks
  double norm = 0;                      // of all gradients but frozen parameters'; not finite if an element is not
  bool finite = true;                   // whether the gradient and the loss are finite
  int32_t first_bad_parameter = -1;     // first in plan order whose gradient is not finite; -1: none
  std::vector<float> sublayer_norms;    // [sublayers] of each one's parameters; a tied table counts for its first use
};

// The global gradient norm: Σ over (parameter, slice) in plan order, in double, whichever rank owns a slice.
//
// After gradients are summed over the uses of tied tables and over replicas, every rank sums the squares of its slices.
// An all-gather gives all ranks all sums. Each rank adds them in the same order, and the losses in the order of
// sum_tree.h. So the norm, gradient clipping and the decision to skip a step have the same bits for every layout. The
// norms per sublayer come from the same sums; only in these do frozen parameters (ModelPlan::frozen) count.
// Threads: the stream's; one thread sums one slice. Blocking: Compute (one all-gather), which every rank of the grid
// calls at the same place.
class GradientNorm {
 public:
  GradientNorm(const ModelPlan& plan, const PipelineLayout& pipeline);

  // `loss`: this rank's sums (zeros except on the head's ranks). `vote` travels in the same all-gather, so that a step
  // ends with one exchange. `state`: bound, and the same object in every call. `collectives`: of all ranks.
  absl::StatusOr<GlobalGradient> Compute(const Stream& stream, const StageState& state, const LossSums& loss,
                                         StepVote vote, Collectives& collectives);

 private:
  void ListSlices(const StageState& state);

  const ModelPlan& plan_;
  const GridShape grid_;
  std::vector<int> owner_;            // [slices of the model, ascending by (parameter, slice)] world rank of the owner
  std::vector<SquaresSlice> slices_;  // this rank's, in (parameter, slice) order
  std::vector<double> mine_;          // loss sums and vote, then one sum per slice
};

// Arguments of the tail of one training step.
struct UpdateSettings {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  // Returns this rank's vote; called just before the norms are exchanged, so that the vote counts for this step.
  // May be empty.
  std::function<StepVote()> vote;
  double highest_loss = std::numeric_limits<double>::infinity();  // per token; above it the update is skipped
  std::function<void()> before_update;  // called just before weights and moments change; may be empty
  bool apply = true;                    // false: gradients only, no weight changes
  // Receives the size of the update for this rank's slices; null: not measured.
  std::vector<UpdateSize>* sizes = nullptr;
};

struct StepResult {
  GlobalGradient gradient;  // with the step's loss sums; the same on every rank
  bool applied = false;     // false: gradient not finite, loss too high, or apply is false; weights are unchanged
  StageTimes times;         // of this rank
  double seconds = 0;       // of the whole step, on this rank
};

class StepTail {
 public:
  // `parts`: bound before the first step. All must outlive the object.
  StepTail(const ModelPlan& plan, const PipelineLayout& pipeline, RankParts& parts, Collectives& collectives,
           absl::Duration timeout)
      : parts_(parts), collectives_(collectives), timeout_(timeout), norm_(plan, pipeline) {}

  // Sets the arguments of the next step's tail; call it before the step's program. `update`: StepScalars::update.
  void Begin(const UpdateSettings& settings, int64_t update);

  absl::Status ReduceTiedGradients(StepResult& result);
  absl::Status ReduceOverReplicas(StepResult& result);
  // `losses`: of this rank's micro-batches; empty on ranks without the output head.
  absl::Status ComputeNorm(std::span<const LossSums> losses, StepResult& result);
  void Update(StepResult& result);
  absl::Status GatherOverReplicas(StepResult& result);
  absl::Status DistributeTiedWeights(StepResult& result);

 private:
  const Stream& stream() const;
  // Whether rounds of weights are updated while others are gathered. Never on the CPU, where the thread that updates
  // also moves messages, nor if UpdateSettings::sizes is set.
  bool UpdatesByRounds() const;
  void Update(std::span<const StateSlice> slices, const StepResult& result);

  RankParts& parts_;
  Collectives& collectives_;
  absl::Duration timeout_;
  GradientNorm norm_;
  UpdateSettings settings_;
  int64_t update_ = 1;
};

}  // namespace hadal
