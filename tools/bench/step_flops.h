// Floating-point operations of a training step, by formula.
//
//   linear     of a layer [in → out] with R rows: 2·R·in·out forward, as much for the input's gradient and for the
//              weight's
//   attention  of a head-wide pair (query, key) that attends: 2·d a product; scores and output forward, four products
//              backward
//              causal: a query and the keys up to itself;  tests/parity/bench_torch.py counts the same
//   recomputed what is executed beyond that: with recomputation the forward of all but the output head once
//   more, and in
//              each attention backward the scores
// Rows are the sentences': no padding. Norms, softmax, the loss and Adam are left out, as customary: a few percent, and
// bound by memory. Thread safety: pure.
#pragma once

#include <span>

#include "layers/model_plan.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

struct StepFlops {
  double linear = 0, attention = 0;
  double recomputed_linear = 0, recomputed_attention = 0;

  // What the model asks for, however it is computed: the measure that systems are compared by.
  double model() const { return linear + attention; }
  double executed() const { return model() + recomputed_linear + recomputed_attention; }
};

// Of all stages together.
StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute);

}  // namespace hadal
