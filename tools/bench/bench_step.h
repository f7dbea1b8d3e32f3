// `hadal bench step` measures a training step, and how long its matrix products alone would take (the GEMM limit).
//
// What: runs random packed batches through a real Engine (weights initialised, gradients, norm, Adam). Steps and the
// GEMM limit of the same products (GemmLimit) are measured in alternation, so that a busy machine slows both. Prints
// medians, the median of limit / step over the pairs, and TFLOP/s (formula: tools/bench/bench_step_report.h).
// On a device the first few steps launch kernel by kernel, without graphs. Their products are recorded for the limit,
// and their times beside those of later steps show what graphs save.
// Under mpirun every rank runs its stage of the pipeline. The limit is then the mean over the ranks of the time each
// needs for its own products, all running at the same time.
// Threads: the stream's. Blocking: all ranks call it together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda_host/launch_device.h"
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
  int32_t tokens = 1024;  // target tokens of a micro-batch; the number of source tokens is the same
  int32_t micro_batches = 1;
  int32_t length = 32;                          // of every sentence in tokens, </s> included
  bool mixed_length = false;                    // lengths spread evenly from 4 to 2·length − 4
  double dropout = 0;                           // on sublayer outputs, attention and activations
  int32_t recompute_every = 0;                  // sublayers per recomputed segment; 0: no recomputation
  Storage compute_storage = Storage::kFloat32;  // bf16 needs a device
  int32_t chunks = 1;                           // per rank
  ScheduleKind schedule = ScheduleKind::k1F1B;
  ResidualMethod method = ResidualMethod::kDeepNorm;
  int32_t repeats = 7;  // measured pairs of step and limit
  GraphMode graphs = GraphMode::kAuto;
  bool overlap_weight_gradients = false;  // as in PipelineOptions
  bool limit = true;                      // false: does not measure the GEMM limit
  bool json = false;
};

// The GEMM limit of a training step: the time that the step's matrix products take without anything else. Its share of
// the step's time shows how close the step is to the best that its products allow.
// The same products can be run in several ways; the limit is the time of the fastest. `run`: one thread, blocking.
struct GemmLimit {
  std::vector<std::string> ways;          // descriptions; at least one
  double flops = 0;                       // floating-point operations of all products
  std::function<double(size_t way)> run;  // returns the seconds of all products. REQUIRES: way < ways.size()
};

// The GEMM limit on a GPU: repeats the recorded product launches of a training step, and nothing else.
//
// The products are the step's by construction: same shapes, types, strides, addresses, epilogues, order, library and
// plans, including recomputed ones. What the library fuses into a product (bias, ReLU, its mask, a gradient's column
// sums) is part of the limit; what the step launches separately is not. Attention is a kernel of its own here and is
// not part of it.
// Ways: one launch per product; and one graph, which has no gaps between launches. The graph is missing if the device
// lacks the memory for it (GraphCache::kKeepFreeBytes must stay free, as for training's graphs).
// The products read what the step left in its buffers (real numbers, not zeros) and write activations, masks, scratch
// and gradients, all of which the next step overwrites before reading. So the steps' results keep the same bits.
// `products`: recorded in a step (cuda::LaunchDevice::NoteProducts), at least one. Their memory and `device` must
// outlive the result.
GemmLimit DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products);

// The GEMM limit on a CPU: the time of a step's products, attention's among them, if each thread did nothing but fused
// multiply-adds in registers (cpu::MultiplyInRegisters). No kernel is faster. There is one way, timed for milliseconds.
// Threads: the stream's. Blocking. `flops`: of this rank's products.
GemmLimit HostGemmLimit(double flops, const Stream& stream);

// Returns the model that these options describe.
ModelOptions BenchModel(const BenchStepOptions& options);

// Rank 0 writes the report to `out`.
// Errors: InvalidArgument for options out of range; ResourceExhausted; those of a training step.
absl::Status RunBenchStep(const BenchStepOptions& options, Communicator& communicator, const Stream& stream,
                          std::ostream& out);

}  // namespace hadal
