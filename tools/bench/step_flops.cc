#include "tools/bench/step_flops.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "layers/adaptive_bands.h"
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

// Of adaptive input: a product for each token with its band's projection.
double InputLinear(const ModelOptions& model, const std::vector<int32_t>& tokens) {
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(model)) {
    const auto count = std::count_if(tokens.begin(), tokens.end(), [&](int32_t t) { return band.Holds(t); });
    sum += static_cast<double>(count) * model.d_model * band.width;
  }
  return sum;
}

double HeadLinear(const ModelOptions& model, const PackedBatch& batch) {
  const double d = model.d_model, rows = static_cast<double>(batch.sentence_target_rows());
  if (!model.adaptive()) return rows * d * model.target_vocabulary;
  double sum = 0;
  for (const AdaptiveBand& band : AdaptiveBands(model)) {
    const auto count =
        std::count_if(batch.target.begin(), batch.target.end(), [&](int32_t t) { return band.Holds(t); });
    sum += band.index == 0 ? rows * d * (band.words + model.adaptive_cutoffs.count)
                           : static_cast<double>(count) * band.width * (d + band.words);
  }
  return sum;
}

Products ProductsOf(const ModelPlan& plan, int32_t sublayer, const PackedBatch& batch) {
  const SublayerRecord& record = plan.sublayers[sublayer];
  const ModelOptions& model = plan.options;
  const double d = model.d_model, target = static_cast<double>(batch.sentence_target_rows());
  const double source = static_cast<double>(batch.sentence_source_rows());
  const bool encoder = record.stack == Stack::kEncoder;
  const double rows = encoder ? source : target;
  const std::vector<int32_t>& offsets = encoder ? batch.source_offsets : batch.target_offsets;
  switch (record.kind) {
    case SublayerKind::kSourceEmbedding:
    case SublayerKind::kTargetEmbedding:
      if (encoder && model.reads_speech()) return {rows * FrontEndProducts(model), 0};
      if (plan.Tables(sublayer) <= 1) return {};
      return {InputLinear(model, encoder ? batch.source : batch.target_input), 0};
    case SublayerKind::kSelfAttention:
      return {4 * rows * d * d, d * Pairs(offsets, offsets, !encoder)};
    case SublayerKind::kCrossAttention:
      return {2 * (target + source) * d * d, d * Pairs(batch.target_offsets, batch.source_offsets, false)};
    case SublayerKind::kFeedForward:
      return {2 * rows * d * model.d_ff, 0};
    case SublayerKind::kOutputHead:
      return {HeadLinear(model, batch), 0};
  }
  return {};
}

}  // namespace

StepFlops StepFlopsOf(const ModelPlan& plan, std::span<const PackedBatch> batches, bool recompute) {
  StepFlops flops;
  for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
    const SublayerKind kind = plan.sublayers[s].kind;
    const bool embeds = kind == SublayerKind::kSourceEmbedding || kind == SublayerKind::kTargetEmbedding;
    const bool again = recompute && kind != SublayerKind::kOutputHead && !embeds;
    for (const PackedBatch& batch : batches) {
      const Products products = ProductsOf(plan, s, batch);
      flops.linear += 3 * 2 * products.linear;
      flops.attention += 6 * 2 * products.attention;
      flops.recomputed_linear += again ? 2 * products.linear : 0;
      flops.recomputed_attention += (again ? 3 : 1) * 2 * products.attention;
    }
  }
  return flops;
}

}  // namespace hadal
