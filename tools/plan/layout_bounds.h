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
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/options/train_options.h"
#include "runtime/stream.h"
#include "tools/plan/layout_prediction.h"
#include "tools/plan/step_costs.h"

namespace hadal {

struct FullestStage {
  int stage = 0;
  int64_t bytes = 0;
};

// LayoutMemory computes the bytes that the ranks of a planned pipeline take on a machine's devices. The arenas are laid
// out as in training (engine.h), stage by stage, so that a search can stop at the first rank that does not fit.
//
// A device holds a rank if LimitedBytes (memory_fit.h) are at most
//   memory_gib − max(reserved_gib, DriverBytes)      and pipeline.memory_limit_bytes, if set
// Threads: const, pure. Time: 4 µs a sublayer of a stage.
class LayoutMemory {
 public:
  // `model` and `machine` must outlive the object. `stream`: of the machine's kind of device; may be
  // Stream::ForLayouts. `limit_bytes`: pipeline.memory_limit_bytes.
  LayoutMemory(const ModelPlan& model, const Machine& machine, const Stream& stream, int64_t limit_bytes);

  // The most that a rank of this plan may take.
  int64_t Room(const PipelineLayout& pipeline) const;
  // The stage of the layout's own replica that takes the most, or the first that takes more than `enough`.
  FullestStage Fullest(const PipelineLayout& pipeline, int64_t enough = std::numeric_limits<int64_t>::max()) const;
  // Sets pipeline.recompute_every to the segment length with which the fullest stage of its replica takes the fewest
  // bytes, and returns that stage. If with every length a stage takes more than `enough`, returns such a stage.
  FullestStage RecomputeBest(PipelineLayout& pipeline, int64_t enough) const;

 private:
  int64_t Bytes(const PipelineLayout& pipeline, int stage) const;

  const ModelPlan& model_;
  const Machine& machine_;
  const Stream stream_;
  const int64_t limit_bytes_;
};

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
  // The least time with all devices busy, over all layouts for which Share was called.
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
