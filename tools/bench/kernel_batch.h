// The arguments of a micro-batch that kernels need besides tensors: tokens, sentences of one length, dropout's
// random-number position, the loss scale.
//
// Row i holds token 7919·i mod V, so that min(R, V) tokens differ if V is no multiple of the prime. On a device the
// values are in its memory (kernels/device_batch.h), so that launches can be recorded; on the CPU the device pointers
// are null and kernels read the host's values. Thread safety: as its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device_batch.h"
#include "runtime/arena.h"
#include "runtime/random.h"
#include "runtime/stream.h"

namespace hadal {

class KernelBatch {
 public:
  // Makes `rows` tokens below `vocabulary`, in sentences of `length`; the last may be shorter. Errors:
  // ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<const KernelBatch>> Create(const Stream& stream, int64_t rows, int64_t length,
                                                                   int64_t vocabulary);

  ConstTokens tokens() const { return {tokens_.data(), static_cast<int64_t>(tokens_.size())}; }
  ConstTokens offsets() const { return {offsets_.data(), static_cast<int64_t>(offsets_.size())}; }
  const DeviceBatch& device_batch() const { return device_batch_; }
  float gradient_scale() const { return 1.0f / static_cast<float>(tokens_.size()); }
  // Dropout of probability 0.1, or none if not `on`.
  Dropout DropoutAt(RandomSite site, bool on) const;
  // Number of (query, key) pairs that attention within the sentences computes.
  double Pairs(bool causal) const;

 private:
  absl::Status Place(const Stream& stream);

  std::vector<int32_t> tokens_, offsets_;
  Arena arena_;
  DeviceBatch device_batch_;
};

}  // namespace hadal
