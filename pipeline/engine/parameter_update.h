// Applies Adam, or Muon where ModelPlan::uses_muon, to the slices whose moments this rank keeps, in a few long ranges
// of memory, not one per parameter.
// Why: a layer of width 64 has 16 parameters, most too short to split over threads. ParameterStore places a sublayer's
// parameters back to back, so neighbours are updated as one range; only tied tables interrupt it.
// Groups: rate, epsilon and decay depend on the parameter (ModelOptions::base_width, StackMethod::adam_epsilon_factor,
// OptimizerOptions::decays_vectors); neighbours for which they differ are separate ranges. Weights and moments of
// frozen parameters (ModelPlan::frozen) stay as they are.
// Muon: for each matrix, the gradient updates the momentum; the orthogonalised momentum then overwrites the gradient.
// It is the direction of the step, which is applied to ranges as Adam's step is. The step's rate is learning_rate ·
// MuonOptions::rate_factor · scale, where `scale` depends on the matrix's shape (MuonScale). Weight decay, as in
// torch.optim.Muon, uses the rate without `scale`. In a model wider than base_width, `scale` is that of a matrix of the
// base model with the same ratio of rows to columns, so that spectral norms of updates do not depend on the width
// (ours; after Yang et al. 2023, arXiv 2310.17813).
// Numerics: Adam treats each element by itself, and Muon each matrix, so neither ranges nor order change a bit. If
// ParameterUpdate::sizes is set, the old weights are copied and compared with the new ones, so the measured change
// includes rounding. Measuring changes no bit.
// Threads: the stream's. Blocking; allocates lists of slices and, to measure on a device, copies of a slice in host
// memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/options/train_options.h"
#include "pipeline/stage/stage_state.h"
#include "runtime/stream.h"

namespace hadal {

// What an update did to one slice, summed in double over blocks of fixed size in ascending order.
struct UpdateSize {
  double change_squares = 0;  // Σ (w_new − w_old)²
  double weight_squares = 0;  // Σ w_new²
};

struct ParameterUpdate {
  OptimizerOptions optimizer;
  double learning_rate = 0;
  double gradient_norm = 0;                  // global; decides clipping
  int64_t update = 1;                        // Adam's t
  Vector workspace;                          // StageState::orthogonal_workspace, for Muon
  std::vector<UpdateSize>* sizes = nullptr;  // receives one entry for each slice; null: not measured
};

// Updates `slices` once. Gradients of Muon's matrices are overwritten.  REQUIRES: `slices` are in ascending order, have
// moments, and hold Muon's matrices whole; their gradients are summed over replicas and, of tied tables, over uses.
void UpdateParameters(const Stream& stream, const ModelPlan& plan, std::span<const StateSlice> slices,
                      const ParameterUpdate& update);

}  // namespace hadal
