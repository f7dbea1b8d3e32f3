#include "kernels/gradient_batch.h"

#include <algorithm>

#include "kernels/cuda_host/launch_device.h"
#include "kernels/device_kernels.h"
#include "kernels/residual_norm.h"
#include "runtime/check.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

// What Take returns begins on 256 bytes.
int64_t Rounded(int64_t floats) {
  constexpr int64_t kBoundary = 64;
  return (floats + kBoundary - 1) / kBoundary * kBoundary;
}

}  // namespace

GradientBatch::GradientBatch() {
  merges_.reserve(kMostMerges);
  products_.reserve(kMostProducts);
}

int64_t GradientBatch::Floats(int64_t rows, int64_t width, int64_t widest) {
  constexpr int64_t kNorms = 8, kLeastRowBlock = 32;  // of a sum beside a product
  const int64_t blocks = (rows + kLeastRowBlock - 1) / kLeastRowBlock;
  return Rounded(std::max(kNorms * ResidualNormPartials(rows, width), blocks * Rounded(widest)));
}

absl::Status GradientBatch::Fork(Device& device, Vector memory, std::byte* workspace) {
  HADAL_ASSIGN_OR_RETURN(const DeviceQueues::Queue queue, static_cast<cuda::LaunchDevice&>(device).MakeKernelQueue());
  HADAL_ASSIGN_OR_RETURN(queue_, SideQueue::Create(device, /*pieces=*/2, /*most_under_way=*/2, queue));
  beside_ = std::make_unique<GradientBatch>();
  beside_->Bind(memory);
  beside_->workspace_ = workspace;
  return absl::OkStatus();
}

float* GradientBatch::Take(const Stream& stream, int64_t floats, int64_t merges) {
  HADAL_CHECK_LE(floats, memory_.size);
  HADAL_CHECK_LE(merges, static_cast<int64_t>(kMostMerges));
  if (used_ + floats > memory_.size || merges_.size() + merges > kMostMerges) LaunchMerges(stream);
  float* const taken = memory_.data + used_;
  used_ = std::min(memory_.size, used_ + Rounded(floats));
  return taken;
}

void GradientBatch::Put(const Stream& stream, const LinearBackwardWeightArgs& product) {
  const auto same = [&](const LinearBackwardWeightArgs& other) { return other.d_weight.data == product.d_weight.data; };
  if (products_.size() == kMostProducts || std::ranges::any_of(products_, same)) LaunchProducts(stream);
  products_.push_back(product);
}

bool GradientBatch::LaunchProducts(const Stream& stream) {
  if (products_.empty()) return false;
  const DeviceKernels& kernels = stream.device()->kernels();
  if (queue_ == nullptr) {
    kernels.linear_backward_weights(stream, products_, this);
  } else {
    const int piece = under_way_ == 0 ? 1 : 0;
    queue_->MarkReady(piece, piece + 1);
    const Stream beside = queue_->Begin(stream, piece);
    kernels.linear_backward_weights(beside, products_, beside_.get());
    beside_->LaunchMerges(beside);
    queue_->End(piece);
    Join();
    under_way_ = piece;
  }
  products_.clear();
  return true;
}

void GradientBatch::Join() {
  if (under_way_ >= 0) queue_->Join(under_way_);
  under_way_ = -1;
}

void GradientBatch::LaunchMerges(const Stream& stream) {
  if (!merges_.empty()) stream.device()->kernels().merge_columns(stream, merges_);
  merges_.clear();
  used_ = 0;
}

void GradientBatch::Launch(const Stream& stream) {
  LaunchProducts(stream);
  Join();
  LaunchMerges(stream);
}

}  // namespace hadal
