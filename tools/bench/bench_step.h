// `hadal bench step`: how fast a training step is, and what share of its time its bare products would need.
//
// What: random packed batches through a real Engine (weights initialised, gradients, norm, Adam), measured in turn with
// the GEMM
//   limit of the same products (tools/bench/gemm_limit.h), step and limit in interleaved pairs, so that a machine that
//   is busy slows both; medians are printed, and the median over the pairs of limit / step. TFLOP/s are those of
//   tools/bench/step_flops.h.
// On a device a few steps first launch kernel by kernel: their products are the limit's, and what graphs save is seen.
// Under mpirun every rank runs its stage of the pipeline; the limit is then the whole machine's: the mean over the
// ranks of what
//   each needs for its own products, all at the same time.
// Threads: the stream's. Blocking: all ranks call it together.
#pragma once

#include <cstdint>
#include <iosfwd>

#include "absl/status/status.h"
#include "layers/method_presets.h"
#include "pipeline/plan/train_options.h"
#include "runtime/comm/communicator.h"
#include "runtime/storage.h"
#include "runtime/stream.h"

namespace hadal {

struct BenchStepOptions {
  int32_t d_model = 512, d_ff = 0, heads = 8;  // d_ff 0: 4 · d_model
  int32_t encoder_layers = 6, decoder_layers = 6;
  int32_t vocabulary = 8000;
  int32_t tokens = 1024;  // target tokens, and source tokens, of a micro-batch
  int32_t micro_batches = 1;
  int32_t length = 32;        // of every sentence, </s> counted
  bool mixed_length = false;  // instead: lengths from 4 to 2·length - 4, evenly
  double dropout = 0;         // on sublayer outputs, attention and activations
  int32_t recompute_every = 0;
  Storage compute_storage = Storage::kFloat32;  // bf16 needs a device
  int32_t chunks = 1;
  ScheduleKind schedule = ScheduleKind::k1F1B;
  ResidualMethod method = ResidualMethod::kDeepNorm;
  int32_t repeats = 7;
  GraphMode graphs = GraphMode::kAuto;
  bool limit = true;  // false: the step alone
  bool json = false;
};

// The model that these options describe.
ModelOptions BenchModel(const BenchStepOptions& options);

// Rank 0 writes the report to `out`.
// Errors: InvalidArgument for options out of range; ResourceExhausted; what a training step can fail with.
absl::Status RunBenchStep(const BenchStepOptions& options, Communicator& communicator, const Stream& stream,
                          std::ostream& out);

}  // namespace hadal
