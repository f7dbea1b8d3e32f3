// LayoutEstimate estimates a layout's memory quickly: close to the exact value (layout_prediction.h), without laying it
// out.
//
//   state         elements of the stage's parameters; moments and masters divided by the replicas that share them
//   activations   live micro-batches × what their sublayers keep (Segment::saved_bytes, added up); with recompute
//                 every k: inputs of segments, and one segment's saved tensors
//   scratch       workspace, borders' buffers, replicas' receive buffers
// Live micro-batches of stage s: gpipe m; 1f1b min(m, S - s); interleaved 2(S - s - 1) + (v - 1)·S + 1 chunks, at most
// v·m.
// Threads: one object per thread (it caches). Time: O(stages) per layout.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "tools/plan/layout_prediction.h"

namespace hadal {

class LayoutEstimate {
 public:
  // `model` and `machine` must outlive the object.
  LayoutEstimate(const ModelPlan& model, const LayoutMachine& machine);

  // Bytes of the fullest device, if the model is cut at `borders` (of the pieces).
  int64_t Bytes(const LayoutPrediction& layout, const std::vector<int32_t>& borders);
  // The recompute interval k that needs the fewest bytes.
  int32_t BestSegment(const LayoutPrediction& layout);
  // Whether any of the layouts, cut into equal counts of sublayers, would fit.
  bool AnyFits(std::vector<LayoutPrediction> layouts, int64_t limit_bytes);

 private:
  struct Kept {  // for one micro-batch
    ActivationCapacity capacity;
    std::vector<double> saved_before;  // [n + 1] floats saved by all earlier sublayers
  };
  const Kept& KeptBy(const BatchOptions& batch);
  double StageBytesOf(const LayoutPrediction& layout, const std::vector<int32_t>& borders, const Kept& kept, int stage);
  double SlotFloats(const LayoutPrediction& layout, const Kept& kept, int32_t first, int32_t last) const;
  double BorderFloats(const LayoutPrediction& layout, const Kept& kept, int32_t cut) const;
  double ScratchFloats(const Kept& kept) const;

  const ModelPlan& model_;
  const LayoutMachine& machine_;
  std::vector<double> elements_before_;               // [n + 1] parameters of all earlier sublayers
  std::vector<double> foreign_before_;                // [n + 1] elements of tables that they use and others own
  std::map<std::pair<int32_t, int32_t>, Kept> kept_;  // by the tokens of a micro-batch
};

}  // namespace hadal
