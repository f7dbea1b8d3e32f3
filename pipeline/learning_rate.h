// LearningRate returns the learning rate of an update. inverse_sqrt and polynomial are fairseq's; for the others the
// table names the source, if there is one. Pure function.
//
// Update k is counted from 1, and t = k − 1 is the number of updates before it. Of RateOptions, W is warmup_updates
// (while t < W, the rate grows linearly), `init` is warmup_initial_rate, `end` is end_rate, D is decay_updates, and
// `peak` and `power` are the fields of these names. `total` is the number of updates in the run.
//   inverse_sqrt  t < W: init + t·(peak − init)/W; else peak·sqrt(W/t)      (W = 0: peak·sqrt(1/max(t, 1)))
//   polynomial    t < W: peak·t/W; else (peak − end)·(1 − (t − W)/(total − W))^power + end
//   constant      t < W: init + t·(peak − init)/W; else peak
//   cosine        t < W: as constant; else end + (peak − end)·(1 + cos(π·(t − W)/(total − W)))/2, as PyTorch's
//                 CosineAnnealingLR behind the warm-up, and fairseq's cosine of one period
//   wsd           warm-up, stable, decay: as constant until t = total − D, then end + (peak − end)·f(q) with
//                 q = (t − (total − D))/D and f = 1 − q (linear), 1 − sqrt(q) (one_minus_sqrt) or
//                 (1 + cos(πq))/2 (cosine), as transformers' get_wsd_schedule and torchtitan's
//   t_fixup       peak·sqrt(4000 / (4000 + t)), no warm-up (Huang et al. 2020, "Improving Transformer Optimization
//                 Through Better Initialization")
#pragma once

#include <cstdint>

#include "pipeline/options/train_options.h"

namespace hadal {

// `update` is 1-based. `total_updates` is the run's length, which only the schedules that end with the run
// (EndsWithRun) read; if it is 0 (unknown), their rate stays at the peak after the warm-up. After that many
// updates their rate stays at `end`.
double LearningRate(const RateOptions& options, int64_t update, int64_t total_updates);

}  // namespace hadal
