#include "pipeline/layout/relu_masks.h"

#include <cstddef>

#include "kernels/linear.h"
#include "pipeline/layout/row_bucket.h"

namespace hadal {
namespace {

// The stack's first feed-forward layer; −1: it has none. All are alike.
int32_t FeedForwardOf(const ModelPlan& plan, Stack stack) {
  for (int32_t s = 0; s < static_cast<int32_t>(plan.sublayers.size()); ++s) {
    if (plan.sublayers[s].stack == stack && plan.ParameterOf(s, ParameterRole::kHiddenWeight) >= 0) return s;
  }
  return -1;
}

}  // namespace

bool HasReluMasks(const ModelPlan& plan, const ActivationCapacity& capacity, int64_t bucket_rows,
                  const Stream& stream) {
  if (stream.device() == nullptr) return false;
  // Weights lie in the arena, on 64 bytes; this one is never read.
  alignas(64) static std::byte place[1];
  const int64_t d_model = plan.options.d_model, d_ff = plan.options.d_ff;
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    const int32_t sublayer = FeedForwardOf(plan, stack);
    if (sublayer < 0) continue;
    const int64_t most = capacity.rows(stack);
    for (int64_t rows = 0; rows < most;) {
      rows = BucketRows(rows + 1, most, bucket_rows);
      if (HasReluMask(stream, {.rows = rows,
                               .hidden_weight = AnyMatrix(place, d_ff, d_model, plan.compute_storage),
                               .hidden_bias = plan.ParameterOf(sublayer, ParameterRole::kHiddenBias) >= 0,
                               .contraction_weight = AnyMatrix(place, d_model, d_ff, plan.compute_storage)})) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace hadal
