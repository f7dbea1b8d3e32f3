// Reduces what the instruments recorded of one run (runtime/depth_metrics.h) to the few numbers that the papers use.
//
//   gradient_ratio_encoder, _decoder   ‖∂L/∂x‖ after the stack's first sublayer over that after its last, at the first
//                                      recorded step: 1 if the gradient arrives, 0 if it vanishes on its way down
//   norm_gradient_ratio                ‖∂L/∂s‖ before a LayerNorm over ‖∂L/∂n‖ after it, geometric mean, at the first
//                                      recorded step (B2T, arXiv 2206.00330, figure 4). The skip around the branch
//                                      multiplies it by the residual gain.
//   early_model_update, model_update   ‖ΔF‖ at the last record of the first kEarlyUpdate updates, and at the last
//                                      record (DeepNet, arXiv 2203.00555, figure 3)
//   similarity, active                 means over the sublayers at the last record (BranchNorm, arXiv 2305.02790,
//                                      section 5)
// Numbers that were not recorded, or are not finite, are absent.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/output/run_record.h"

namespace hadal {

inline constexpr int64_t kEarlyUpdate = 10;

struct CellInstruments {
  std::optional<double> gradient_ratio_encoder, gradient_ratio_decoder;
  std::optional<double> norm_gradient_ratio;
  std::optional<double> early_model_update, model_update;
  std::optional<double> similarity, active;
};

CellInstruments ReadInstruments(const RunRecord& run);

// The first and the last record that contain a series, or null.
const DepthMetrics* FirstRecord(const RunRecord& run, DepthSeries series);
const DepthMetrics* LastRecord(const RunRecord& run, DepthSeries series);

}  // namespace hadal
