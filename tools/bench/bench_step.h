// `hadal bench step` measures a training step, and how long its matrix products alone would take (the GEMM limit).
//
// What: runs random packed batches through a real Engine (weights initialised, gradients, norm, Adam). Steps and the
// GEMM limit of the same products (tools/bench/gemm_limit.h) are measured in alternation, so that a busy machine slows
// both. Prints medians, the median over the pairs of limit / step, and TFLOP/s by tools/bench/bench_step_report.h.
// On a device the first few steps launch kernel by kernel, without graphs: their products are recorded for the limit,
// and the comparison shows what graphs save.
// Under mpirun every rank runs its stage of the pipeline. The limit is then the mean over the ranks of the time each
// needs for its own products, all running at the same time.
// Threads: the stream's. Blocking: all ranks call it together.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "absl/status/status.h"
#include "layers/method_presets.h"
#include "pipeline/options/train_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace hadal {

struct BenchStepOptions {
  int32_t d_model = 512, d_ff = 0, heads = 8;  // d_ff 0: 4 · d_model
  int32_t encoder_layers = 6, decoder_layers = 6;
  int32_t vocabulary = 8000;
  int32_t tokens = 1024;  // target tokens of a micro-batch, and as many source tokens
  int32_t micro_batches = 1;
  int32_t length = 32;                          // of every sentence, with </s>
  bool mixed_length = false;                    // lengths spread evenly from 4 to 2·length − 4
  double dropout = 0;                           // on sublayer outputs, attention and activations
  int32_t recompute_every = 0;                  // sublayers per recomputed segment; 0: no recomputation
  Storage compute_storage = Storage::kFloat32;  // bf16 needs a device
  int32_t chunks = 1;                           // per rank
  ScheduleKind schedule = ScheduleKind::k1F1B;
  ResidualMethod method = ResidualMethod::kDeepNorm;
  int32_t repeats = 7;  // measured pairs of step and limit
  GraphMode graphs = GraphMode::kAuto;
  bool limit = true;  // false: does not measure the GEMM limit
  bool json = false;
};

// Returns the model that these options describe.
ModelOptions BenchModel(const BenchStepOptions& options);

// Rank 0 writes the report to `out`.
// Errors: InvalidArgument for options out of range; ResourceExhausted; those of a training step.
absl::Status RunBenchStep(const BenchStepOptions& options, Communicator& communicator, const Stream& stream,
                          std::ostream& out);

}  // namespace hadal
