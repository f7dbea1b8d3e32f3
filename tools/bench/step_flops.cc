#include "tools/bench/step_flops.h"

#include <cstdint>
#include <vector>

#include "layers/speech_front_end.h"

namespace hadal {
namespace {

// Number of (query, key) pairs that attend.
double Pairs(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys, bool causal) {
  double pairs = 0;
  for (size_t i = 0; i + 1 < queries.size(); ++i) {
    const double q = queries[i + 1] - queries[i], k = keys[i + 1] - keys[i];
    pairs += causal ? q * (q + 1) / 2 : q * k;
  }
  return pairs;
}

// Multiply-adds of a sublayer's linear layers and of one product of its attention.
struct Products {
  double linear = 0, attention = 0;
};

Products ProductsOf(const SublayerRecord& record, const ModelOptions& model, const PackedBatch& batch) {
  const double d = model.d_model, target = static_cast<double>(batch.sentence_target_rows());
  const double source = static_cast<double>(batch.sentence_source_rows());
  const bool encoder = record.stack == Stack::kEncoder;
  const double rows = encoder ? source : target;
  const std::vector<int32_t>& offsets = encoder ? batch.source_offsets : batch.target_offsets;
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
      return {rows * FrontEndProducts(model), 0};
    case SublayerKind::kTargetEmbedding:
      return {};
    case SublayerKind::kSelfAttention:
      return {4 * rows * d * d, d * Pairs(offsets, offsets, !encoder)};
    case SublayerKind::kCrossAttention:
      return {2 * (target + source) * d * d, d * Pairs(batch.target_offsets, batch.source_offsets, false)};
    case SublayerKind::kFeedForward:
      return {2 * rows * d * model.d_ff, 0};
    case SublayerKind::kOutputHead:
      return {target * d * model.target_vocabulary, 0};
  }
  return {};
}

}  // namespace

StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute) {
  StepFlops flops;
  for (const SublayerRecord& record : plan.sublayers) {
    const bool again = recompute && record.kind != SublayerKind::kOutputHead;
    for (const PackedBatch& batch : batches) {
      const Products products = ProductsOf(record, plan.options, batch);
      flops.linear += 3 * 2 * products.linear;
      flops.attention += 6 * 2 * products.attention;
      flops.recomputed_linear += again ? 2 * products.linear : 0;
      flops.recomputed_attention += (again ? 3 : 1) * 2 * products.attention;
    }
  }
  return flops;
}

}  // namespace hadal
