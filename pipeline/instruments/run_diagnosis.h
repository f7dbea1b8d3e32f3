// RunDiagnosis says in plain words what is wrong with a run in progress. It uses only what every step yields anyway:
// the nll, the gradient norm of each sublayer's parameters, the learning rate, the target tokens.
//
// It evaluates blocks of 10 applied updates: their mean nll, and the root mean square of each norm. Each diagnosis is
// reported once when it begins, and once when it ends. A resumed run has no memory of it, so it reports again what
// still holds.
//
//   no gradient in the encoder   the norm over its sublayers is less than 1e-3 of that over the decoder's in 3 blocks
//                                in a row. Ends: more than 1e-2 in 3 blocks in a row
//   vanishing (of each stack)    in 3 blocks in a row, each of the stack's lowest sublayers (a tenth of the stack, at
//                                least 3) has a norm of less than 1e-4 of the stack's largest.
//                                Ends: with 1e-3 in place of 1e-4 this is false in 3 blocks in a row
//   loss of token frequencies    the mean nll of the last 5 blocks is at least H − 0.05 nats, and within 1% of that of
//                                the 5 blocks before. Ends: that mean is less than H − 0.3
//   jump of the loss             a block's nll is 0.5 nats above the lowest so far, that of the first step included
//                                (too high a learning rate may spoil the first updates). Reported once; no end
//
// H is the entropy of the target tokens of the run's steps so far, −Σ p·ln p + (distinct − 1) / (2·tokens) (Miller
// 1955): the nll of a model that predicts each token by its frequency alone. 0.05 and 0.3 are the limits of
// `hadal compare` (tools/python/pyhadal/grid_runs.py). The other limits: healthy runs (DeepNorm at 4, 50 and 500 layers
// a side, Pre-LN at 4 and 50, T-Fixup and R-Fixup at 18, NormFormer and Keel at 4) had at least 1e-2 of the decoder's
// gradient in the encoder, and 5e-3 of the largest in each sublayer, from the tenth update on.
// Early in warm-up a model has hardly learned: Adam moves a weight by about the learning rate at most, and a healthy
// ReZero model starts without any gradient below its gains. So only a jump is reported before the learning rates of the
// updates add up to 0.01, and the diagnosis "loss of token frequencies" uses only blocks after that.
// Cost, on the reporting rank alone: an increment for each target token, an addition for each sublayer, and at most a
// logarithm for each token of the vocabulary every 10 updates. No exchange, no pass over a tensor.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/options/train_options.h"
#include "runtime/data/packed_batch.h"
#include "runtime/metrics_sink.h"

namespace hadal {

class RunDiagnosis {
 public:
  // `plan` and `rate` must outlive the object.
  RunDiagnosis(const ModelPlan& plan, const RateOptions& rate);

  // Returns the diagnoses that begin or end with this step, a sentence or two each; usually none. `batches`: all of the
  // step's. Skipped steps are ignored.
  std::vector<std::string> AfterStep(const StepMetrics& step, std::span<const PackedBatch> batches);

 private:
  // Whether a diagnosis holds: from the step `since` on.
  struct State {
    enum class Phase { kNotYet, kHolds, kOver };
    Phase phase = Phase::kNotYet;
    int blocks = 0;  // in a row that support the next phase
    int64_t since = 0;
  };
  // A step; or a block: its first step, with the mean nll of its steps.
  struct Point {
    int64_t step = 0, update = 0;
    double nll = 0, learning_rate = 0;
  };

  // Whether the updates so far can have moved the model.
  bool Moved() const;
  // Updates `state` by the last block. `holds`: the block supports the diagnosis; `opposite`: it supports its end.
  // Returns whether the diagnosis begins or ends with this block, the last of `blocks` such blocks in a row.
  bool Advance(bool holds, bool opposite, int blocks, State& state) const;
  double StackSquares(Stack stack) const;
  // How many of the stack's lowest sublayers in a row have less than `share` of its largest norm.
  int VanishingSublayers(Stack stack, double share) const;
  double UnigramEntropy() const;

  std::string EncoderWithoutGradient();
  std::string Vanishing(Stack stack);
  std::string LossOfFrequencies();
  std::string LossJump();

  const ModelPlan& plan_;
  const RateOptions& rate_;
  std::vector<int32_t> sublayers_;  // of the plan, by place in StepMetrics::depth_gradient_norms
  std::vector<int64_t> token_counts_;
  std::vector<Point> points_;    // steps of the current block and of the one before it
  std::vector<double> squares_;  // [sublayers_] squared gradient norms, summed over the current block's steps
  std::deque<Point> blocks_;     // the last blocks since Moved(), at most 10; before that only the last one
  double learning_rates_ = 0;    // Σ over the updates so far
  std::optional<Point> lowest_;  // the block with the lowest nll; until one is lower, the first step
  bool jumped_ = false;
  State encoder_, frequencies_, vanishing_[2];  // [Stack]
};

}  // namespace hadal
