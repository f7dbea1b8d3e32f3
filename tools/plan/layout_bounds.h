// LayoutBounds gives lower bounds of the time of a layout's step, without its schedule: the search tries layouts in
// their order (layout_search.h).
//
// A layout has S stages and R replicas; its step has M micro-batches, of which a replica has at most m = ⌈M/R⌉. C is
// the time of one micro-batch in all sublayers (forward, recompute and backward), c_s that in the chunks of stage s,
// but at least the host's time for the launches of their forwards and backwards. Where the search chooses what is
// recomputed, none of it counts.
//   Share   max(m · C / S, C): a device's share of the work, and the way of one micro-batch through the depth (the
//           second C is without the weight halves where the backward is split)
//   Cut     max over stages s of   m · c_s + Σ_{t<s} (time of t's first chunk + 2 messages + the host's time for the
//           launches of a forward and a backward)
//           because the first micro-batch passes the earlier stages before s starts, and the last one returns through
//           their first chunks. Where the backward is split, only the first chunk's forward, one message and half of
//           the launches count. In both cases, plus the tail of a step: the reading of all gradients, then
//           the longer of the update and the gathering of weights, which may overlap each other. The tail is computed
//           as if stages were of equal size
// Threads: one object per thread (it caches).
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/options/train_options.h"
#include "tools/plan/layout_prediction.h"
#include "tools/plan/step_costs.h"

namespace hadal {

class LayoutBounds {
 public:
  // `batch`: the config's. `model` and `machine` must outlive the object.
  LayoutBounds(const ModelPlan& model, const BatchOptions& batch, const LayoutMachine& machine)
      : model_(model), batch_(batch), machine_(machine) {}

  // Infinity if the costs have none for the layout's micro-batches, but the layout's number of micro-batches is not the
  // config's (so that their sizes differ). Errors: NotFound if it is the config's; other errors of the costs.
  absl::StatusOr<double> Share(const LayoutPrediction& layout);
  // `borders`: of the layout's chunks (PipelineLayout::borders).  REQUIRES: Share of the layout is finite.
  double Cut(const LayoutPrediction& layout, const std::vector<int32_t>& borders) const;
  // M · C / (S · R), the step's time with all devices always busy: the least of the layouts for which Share was called.
  double roofline_seconds() const { return roofline_seconds_; }

 private:
  // nullptr: there are none.
  absl::StatusOr<const std::vector<SublayerSeconds>*> Seconds(const BatchOptions& batch, bool recompute);
  double Tail(const LayoutPrediction& layout) const;
  double Message(const LayoutPrediction& layout, int stage) const;

  const ModelPlan& model_;
  const BatchOptions batch_;
  const LayoutMachine& machine_;
  std::map<std::pair<int, bool>, std::optional<std::vector<SublayerSeconds>>> seconds_;  // by M, recompute
  double roofline_seconds_ = std::numeric_limits<double>::infinity();
};

}  // namespace hadal
