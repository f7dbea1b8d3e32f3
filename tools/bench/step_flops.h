// Floating-point operations of a training step, by formula.
//
//   linear      a layer [in → out] with R rows: 2·R·in·out forward, and as many for each of the input's and the
//               weight's gradient
//   attention   2·d per product and per (query, key) pair that attends; two products forward (scores, output), four
//               backward. Causal: a query attends to the keys up to itself. tests/parity/bench_torch.py counts the same
//   recomputed  what is executed beyond that: the scores in each attention backward, and with recomputation the forward
//               pass a second time, without the output head
// Rows are those of the sentences, without padding. Norms, softmax, the loss and Adam are left out, as is customary:
// they are a few percent and memory-bound. Thread safety: pure.
#pragma once

#include <span>

#include "layers/model_plan.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

struct StepFlops {
  double linear = 0, attention = 0;
  double recomputed_linear = 0, recomputed_attention = 0;

  // Operations that the model requires, however they are computed: the measure for comparing systems.
  double model() const { return linear + attention; }
  double executed() const { return model() + recomputed_linear + recomputed_attention; }
};

// Sums over all stages.
StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute);

}  // namespace hadal
