#include "layers/branch.h"

#include "layers/cross_attention.h"
#include "layers/feed_forward.h"
#include "layers/self_attention.h"

namespace hadal {

std::unique_ptr<Branch> MakeBranch(const ModelPlan& plan, int32_t sublayer) {
  switch (plan.sublayers[sublayer].kind) {
    case SublayerKind::kSelfAttention:
      return std::make_unique<SelfAttention>(plan, sublayer);
    case SublayerKind::kCrossAttention:
      return std::make_unique<CrossAttention>(plan, sublayer);
    case SublayerKind::kFeedForward:
      return std::make_unique<FeedForward>(plan, sublayer);
    default:
      break;
  }
  HADAL_CHECK(false && "embeddings and the head are not residual branches");
  return nullptr;
}

}  // namespace hadal
