// Loss spikes: a step whose loss lies far above those of the steps before is left out, as one that is not finite is.
//
//   mean and variance   exponentially weighted over the losses of applied updates: with δ = loss − mean and weight a =
//                       max(1/window, 1/(n + 1)): mean += a·δ, variance = (1 − a)·(variance + a·δ²), the plain ones
//                       while n < window
//   spike               loss > mean + z·√variance, from the window-th update on
//
// Why: one bad batch can throw a deep model off for good; leaving it out costs a step. Losses that were left out do not
// count, or a spike would excuse the next. The decision is a function of the step's loss and of numbers that are saved
// with the checkpoint, so that all ranks and a resumed run decide alike. Source of the formulas: Finch, "Incremental
// calculation of weighted mean and variance", 2009, section 9.
#pragma once

#include <cstdint>

namespace hadal {

// Of the losses (nats a target token, label smoothing included) of the updates applied so far.
struct LossTrend {
  int64_t losses = 0;
  double mean = 0;
  double variance = 0;
  bool operator==(const LossTrend&) const = default;
};

struct LossSpikeOptions {
  double deviations = 0;  // z; 0: off
  int64_t window = 100;   // updates
};

// The trend with one more loss.  REQUIRES: `loss` is finite.
LossTrend WithLoss(const LossTrend& trend, double loss, const LossSpikeOptions& options);

// The highest loss that is no spike; infinity while there is no telling, or where the option is off.
double HighestLoss(const LossTrend& trend, const LossSpikeOptions& options);

}  // namespace hadal
