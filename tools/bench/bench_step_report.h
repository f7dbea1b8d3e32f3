// The results of `hadal bench step`, and their output as text or as JSON for scripts (tests/gpu/step_bench).
// Thread safety: plain values, pure functions.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "layers/model_options.h"
#include "layers/model_plan.h"
#include "runtime/data/packed_batch.h"
#include "tools/bench/bench_step.h"

namespace hadal {

// Floating-point operations of a training step, by formula.
//
//   linear      a layer [in → out] with R rows: 2·R·in·out forward, and as many for each of the input's and the
//               weight's gradient
//   attention   2·d_model per product and per (query, key) pair that attends; two products forward (scores, output),
//               four backward. Causal: a query attends to the keys up to itself. tests/parity/bench_torch.py agrees
//   recomputed  the additional operations that hadal executes: the scores in each attention backward, and with
//               recomputation the forward pass a second time, without the output head
// Rows are those of the sentences, without padding. Norms, softmax, the loss and Adam are left out, as is customary:
// they are a few percent and memory-bound.
struct StepFlops {
  double linear = 0, attention = 0;
  double recomputed_linear = 0, recomputed_attention = 0;

  // Operations that the model requires, however they are computed: the measure for comparing systems.
  double model() const { return linear + attention; }
  double executed() const { return model() + recomputed_linear + recomputed_attention; }
};

// Returns the operations of all stages together.
StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute);

inline constexpr int kStepParts = 7;
inline constexpr const char* kStepPartNames[kStepParts] = {"forward",       "recompute", "backward", "wait",
                                                           "communication", "optimizer", "other"};

struct BenchStepMeasurement {
  // The configuration that was measured.
  ModelOptions model;
  int64_t parameters = 0;
  int ranks = 1, threads = 1;
  std::string device;  // its name; "" for the CPU
  int64_t target_tokens = 0;
  StepFlops flops;

  // Measured times. Repeat i of a step and repeat i of the limit form a pair.
  std::vector<double> step_seconds;                    // [repeats] of the slowest rank
  std::vector<std::vector<double>> parts[kStepParts];  // [part][rank][repeats] seconds
  // The GEMM limit, the time of the step's matrix products alone (GemmLimit in bench_step.h): the ways in which the
  // products were run, and the times of each way. Empty if the limit was not measured.
  std::vector<std::string> ways;
  std::vector<std::vector<double>> limit_seconds;  // [ways][repeats] the ranks' mean
  double limit_flops = 0;                          // operations of the limit's products, all ranks together

  // On a device; empty on the CPU.
  std::vector<double> launches;        // [ranks] launches of kernels and graphs in the last step
  std::vector<double> eager_seconds;   // steps without graphs; empty if the run used none
  std::vector<double> eager_launches;  // [ranks] launches in the last step without graphs
  std::vector<double> graph_bytes;     // [ranks] device memory of the recorded graphs

  // [ranks] The process's peak resident memory; its arena; the arena by `hadal plan`, which should be equal.
  std::vector<double> peak_rss_bytes, arena_bytes, plan_bytes;
};

void PrintBenchStepText(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out);
void PrintBenchStepJson(const BenchStepOptions& options, const BenchStepMeasurement& measured, std::ostream& out);

}  // namespace hadal
