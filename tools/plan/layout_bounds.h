// LayoutBounds gives lower bounds of the time of a layout's step, without its schedule: the search tries layouts in
// their order (layout_search.h).
//
//   Share   the devices' share of the work, M/R · C / S, at least the way of one micro-batch through the depth
//           (without its weight halves where the backward is split)
//   Cut     max over stages s of   m · c_s + Σ_{t<s} (first chunk of t + 2 messages and the launches after them)
//           because the first micro-batch passes the earlier stages before s starts, and the last one returns through
//           their first chunks (unless the backward is split); plus the update or the gathering of weights for
//           stages of equal size. c_s is at least the host's time for the launches of its forwards and backwards
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

  // Infinity if there are no costs for such micro-batches.
  // Errors: the costs', if they have none for the config's micro-batches.
  absl::StatusOr<double> Share(const LayoutPrediction& layout);
  // `borders`: of the layout's pieces.  REQUIRES: Share of the layout is finite.
  double Cut(const LayoutPrediction& layout, const std::vector<int32_t>& borders) const;
  // The least time of all layouts whose Share was asked, with all devices busy.
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
