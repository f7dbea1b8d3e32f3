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
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/layout/pipeline_layout.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/stream.h"
#include "tools/bench/gemm_limit.h"
#include "tools/bench/host_gemm_limit_attention.h"

namespace hadal {

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
