// Detects loss spikes. A step whose loss is far above those of the steps before is skipped, like a step that is not
// finite.
//
//   mean and variance   exponentially weighted over the losses of applied updates. With δ = loss − mean and weight a =
//                       max(1/window, 1/(n + 1)): mean += a·δ, variance = (1 − a)·(variance + a·δ²). While n < window
//                       these are the unweighted ones.
//   spike               loss > mean + z·√variance, from the window-th update on
//
// Why: one bad batch can make a deep model diverge for good; skipping it costs one step. Skipped losses do not enter
// the mean, because otherwise one spike would hide the next. The decision depends only on the step's loss and on
// numbers saved with the checkpoint, so all ranks and a resumed run decide alike. Source of the formulas: Finch,
// "Incremental calculation of weighted mean and variance", 2009, section 9.
#pragma once

#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/options/train_options.h"

namespace hadal {

// The trend with one more loss.  REQUIRES: `loss` is finite.
LossTrend WithLoss(const LossTrend& trend, double loss, const LossSpikeOptions& options);

// The highest loss that is not a spike; infinity before `window` losses are known or if detection is off.
double HighestLoss(const LossTrend& trend, const LossSpikeOptions& options);

}  // namespace hadal
