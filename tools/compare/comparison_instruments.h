// What the instruments saw of one run (runtime/depth_metrics.h), in the few numbers that the papers argue with.
//
//   gradient_ratio_encoder, _decoder   ‖∂L/∂x‖ behind the stack's first sublayer over that behind its last, at the
//                                      first recorded step: 1 is a gradient that arrives, 0 one that vanishes on its
//                                      way down
//   norm_gradient_ratio                ‖∂L/∂s‖ in front of a LayerNorm over ‖∂L/∂n‖ behind it, geometric mean, at the
//                                      first step (B2T, arXiv 2206.00330, figure 4). The skip around the branch
//                                      multiplies it by the residual gain.
//   early_model_update, model_update   ‖ΔF‖ after kEarlyUpdate updates, and at the last record (DeepNet, arXiv
//                                      2203.00555, figure 3)
//   similarity, active                 means over the sublayers at the last record (BranchNorm, arXiv 2305.02790,
//                                      section 5)
// A number that was not recorded, or is not finite, is absent.
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/report/run_record.h"

namespace hadal {

inline constexpr int64_t kEarlyUpdate = 10;

struct CellInstruments {
  std::optional<double> gradient_ratio_encoder, gradient_ratio_decoder;
  std::optional<double> norm_gradient_ratio;
  std::optional<double> early_model_update, model_update;
  std::optional<double> similarity, active;
};

CellInstruments ReadInstruments(const RunRecord& run);

// The first and the last record that hold a series, or null.
const DepthMetrics* FirstRecord(const RunRecord& run, DepthSeries series);
const DepthMetrics* LastRecord(const RunRecord& run, DepthSeries series);

}  // namespace hadal
