// The GEMM limit of a training step: the time that the step's matrix products take without anything else. Its share of
// the step's time shows how close the step is to the best that its products allow.
//
// On a CPU oneDNN runs the products, including attention's (HostGemmLimit). On a GPU the step's own library calls
// are repeated (DeviceGemmLimit), without attention, which is a fused kernel there.
// The same products can be run in several ways; the limit is the fastest.
// Threads: one. Blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda_host/launch_device.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "tools/bench/host_gemm_limit_attention.h"

namespace hadal {

struct GemmLimitTimes {
  double seconds = 0;            // of all products
  double attention_seconds = 0;  // of attention's among them
};

class GemmLimit {
 public:
  virtual ~GemmLimit() = default;

  // Descriptions of the ways; at least one.
  virtual const std::vector<std::string>& ways() const = 0;
  // REQUIRES: way < ways().size().
  virtual GemmLimitTimes Run(size_t way) = 0;
  // Floating-point operations of one Run.  REQUIRES: Run was called.
  virtual double flops() const = 0;
};

// The GEMM limit on a GPU: repeats the recorded product launches of a training step, and nothing else.
//
// The products are the step's by construction: same shapes, types, strides, addresses, epilogues, order, library and
// plans, including recomputed ones. What the library fuses into a product (bias, ReLU, its mask, a gradient's column
// sums) is part of the limit; what the step launches separately is not. Attention is a kernel of its own here and is
// not part of it.
// Ways: one launch per product; and one graph, which has no gaps between launches. The second is missing if the device
// lacks the memory for the graph (as much is left free as for training's graphs).
// The products read what the step left in its buffers (real numbers, not zeros) and write activations, masks, scratch
// and gradients, all of which the next step overwrites before reading. So no step changes by a bit.
// Threads: one. Blocking.
class DeviceGemmLimit : public GemmLimit {
 public:
  // `products`: recorded in a step (cuda::LaunchDevice::NoteProducts), at least one. Their memory and `device` must
  // outlive the object.
  DeviceGemmLimit(cuda::LaunchDevice& device, std::vector<cuda::MatmulArgs> products);

  const std::vector<std::string>& ways() const override { return ways_; }
  GemmLimitTimes Run(size_t way) override;
  double flops() const override { return flops_; }

 private:
  void LaunchAll();
  void Record();

  cuda::LaunchDevice& device_;
  const std::vector<cuda::MatmulArgs> products_;
  double flops_ = 0;
  std::vector<std::string> ways_ = {"one launch a product"};
  std::unique_ptr<DeviceGraph> graph_;  // null: no memory for it
};

// The GEMM limit on a CPU: only oneDNN's products.
//
// Runs every product of every sublayer of this rank, in the step's order and shapes: for each linear layer the output,
// the input's gradient and the weight's gradient (accumulated); the head's products by its blocks of rows; attention's
// seven products per layer; with recomputation the forward's a second time. Weights and their gradients have the
// model's number and sizes, so that caches hold no more of them than in a real step. Activations rotate through a few
// buffers, which is faster than in a real step, where the backward pass fetches them from memory. So the limit is too
// low rather than too high.
// No bias, softmax or norm runs. Ways: each thread multiplies its own rows; the library's own threads
// (ProductThreading). Blocking.
class HostGemmLimit : public GemmLimit {
 public:
  // Prepares the products of `rank`'s sublayers for `batches`. `plan`, `pipeline` and `batches` must outlive the
  // object.
  // Errors: ResourceExhausted if the weights do not fit into memory.
  static absl::StatusOr<std::unique_ptr<HostGemmLimit>> Create(const ModelPlan& plan, const PipelineLayout& pipeline,
                                                               int rank, std::span<const PackedBatch> batches,
                                                               const Stream& stream);

  ~HostGemmLimit() override;

  const std::vector<std::string>& ways() const override { return ways_; }
  GemmLimitTimes Run(size_t way) override;
  double flops() const override { return flops_; }

 private:
  enum class Half { kForward, kBackward };
  struct Attentions;  // of one micro-batch: encoder, decoder, cross

  HostGemmLimit(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, std::span<const PackedBatch> batches,
                const Stream& stream);
  void LayOut(ArenaLayout& layout);
  void RunChunk(int chunk, size_t batch, Half half);
  void RunSublayer(int32_t sublayer, size_t batch, Half half);
  // One linear layer's product, or its two gradients.
  void Linear(Half half, int64_t rows, int64_t in, int64_t out, int64_t weight);
  void Head(int64_t rows, int64_t weight);
  void Attention(Half half, AttentionProducts& products, bool cross);
  void Product(char transpose_a, char transpose_b, const float* a, const float* b, float beta, float* c, int64_t rows,
               int64_t columns, int64_t depth);
  float* NextInput();
  float* NextOutput();

  const std::vector<std::string> ways_ = {"each thread its own rows", "the library's threads"};
  const ModelPlan& plan_;
  const PipelineLayout& pipeline_;
  int rank_;
  std::span<const PackedBatch> batches_;
  Stream stream_;
  ProductThreading threading_ = ProductThreading::kOwnRows;
  std::vector<int64_t> weight_offset_;                   // [sublayers] floats before its weights on this rank
  std::vector<std::unique_ptr<Attentions>> attentions_;  // [batches]
  Arena arena_;
  ArenaSlice weight_slice_, gradient_slice_, activation_slice_, score_slice_;
  float *weights_ = nullptr, *gradients_ = nullptr, *activations_ = nullptr, *scores_ = nullptr;
  int64_t activation_floats_ = 0;  // of one buffer
  int64_t score_floats_ = 0;
  int next_input_ = 0, next_output_ = 0;
  double flops_ = 0, attention_seconds_ = 0;
};

}  // namespace hadal
