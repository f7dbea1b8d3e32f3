#include "tools/bench/kernel_batch.h"

#include <algorithm>

#include "kernels/device_kernels.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr RandomCounter kCounter = {.seed = 1, .step = 1};

}  // namespace

absl::StatusOr<std::shared_ptr<const KernelBatch>> KernelBatch::Create(const Stream& stream, int64_t rows,
                                                                       int64_t length, int64_t vocabulary) {
  auto batch = std::make_shared<KernelBatch>();
  for (int64_t i = 0; i < rows; ++i) batch->tokens_.push_back(static_cast<int32_t>(7919 * i % vocabulary));
  for (int64_t row = 0; row < rows; row += length) batch->offsets_.push_back(static_cast<int32_t>(row));
  batch->offsets_.push_back(static_cast<int32_t>(rows));
  if (stream.device() != nullptr) HADAL_RETURN_IF_ERROR(batch->Place(stream));
  return batch;
}

absl::Status KernelBatch::Place(const Stream& stream) {
  const BatchContent content = {.random = {.seed_low = static_cast<uint32_t>(kCounter.seed), .step = kCounter.step},
                                .gradient_scale = gradient_scale(),
                                .source = tokens(),
                                .target_input = tokens(),
                                .target = tokens(),
                                .source_offsets = offsets(),
                                .target_offsets = offsets()};
  const DeviceBatchShape shape = ShapeOf(content);
  ArenaLayout layout;
  const ArenaSlice block = layout.ReserveBytes("batch", BatchBytes(shape));
  const ArenaSlice on_host = layout.ReserveHostBytes("batch", BatchBytes(shape));
  HADAL_ASSIGN_OR_RETURN(arena_, Arena::Allocate(layout, stream.device()));
  stream.device()->kernels().write_batch(content, shape, arena_.Get<std::byte>(on_host));
  stream.FromHost(arena_.Get<std::byte>(block), arena_.Get<std::byte>(on_host), block.bytes);
  device_batch_ = DeviceBatchIn(shape, 0, arena_.Get<std::byte>(block));
  return absl::OkStatus();
}

Dropout KernelBatch::DropoutAt(RandomSite site, bool on) const {
  Dropout dropout = {
      .counter = kCounter, .threshold = on ? Dropout::Threshold(0.1) : 0, .device_position = device_batch_.random};
  dropout.counter.site = site;
  return dropout;
}

double KernelBatch::Pairs(bool causal) const {
  double pairs = 0;
  for (size_t n = 0; n + 1 < offsets_.size(); ++n) {
    const double length = offsets_[n + 1] - offsets_[n];
    pairs += causal ? length * (length + 1) / 2 : length * length;
  }
  return pairs;
}

}  // namespace hadal
