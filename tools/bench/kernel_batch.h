// Inputs of benchmarks: whole random micro-batches for `hadal bench step` (RandomBatch); a micro-batch's arguments
// (KernelBatch) and the tensors (KernelTensors) of one kernel for `hadal bench kernels`.
// Thread safety: that of the stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device_batch.h"
#include "runtime/arena.h"
#include "runtime/data/packed_batch.h"
#include "runtime/random.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

struct BenchBatchOptions {
  int32_t vocabulary = 8000;
  int32_t tokens = 1024;      // target tokens of a micro-batch, and as many source tokens
  int32_t length = 32;        // of every sentence, with </s>
  bool mixed_length = false;  // lengths spread evenly from 4 to 2·length − 4
};

// Returns a packed micro-batch of random tokens: a pure function of the options and the micro-batch's number.
PackedBatch RandomBatch(const BenchBatchOptions& options, int32_t micro_batch);

// The arguments of a micro-batch that kernels need besides tensors: tokens, sentences of one length, dropout's
// random-number position, the loss scale.
//
// Row i of the R rows holds token 7919·i mod V, V being the vocabulary's size. So min(R, V) tokens differ if V is no
// multiple of the prime 7919. On a device the values are in its memory (kernels/device_batch.h), so that launches can
// be recorded; on the CPU the pointers of device_batch() are null and kernels read the host's values.
class KernelBatch {
 public:
  // Makes R = `rows` tokens of a vocabulary of V = `vocabulary`, in sentences of `length`; the last sentence may be
  // shorter. Errors: ResourceExhausted.
  static absl::StatusOr<std::shared_ptr<const KernelBatch>> Create(const Stream& stream, int64_t rows, int64_t length,
                                                                   int64_t vocabulary);

  ConstTokens tokens() const { return {tokens_.data(), static_cast<int64_t>(tokens_.size())}; }
  ConstTokens offsets() const { return {offsets_.data(), static_cast<int64_t>(offsets_.size())}; }
  const DeviceBatch& device_batch() const { return device_batch_; }
  float gradient_scale() const { return 1.0f / static_cast<float>(tokens_.size()); }
  // Dropout of probability 0.1, or none if not `on`.
  Dropout DropoutAt(RandomSite site, bool on) const;

 private:
  absl::Status Place(const Stream& stream);

  std::vector<int32_t> tokens_, offsets_;
  Arena arena_;
  DeviceBatch device_batch_;
};

// How a kernel uses a tensor. Its bytes count once if it is read or written, twice if it is updated, and not at all if
// it is scratch.
enum class Traffic { kScratch, kRead, kWritten, kUpdated };
enum class TensorValues { kSigned, kPositive };

// The tensors of one measured kernel: memory on a stream's device, filled with non-zero numbers, and the number of
// bytes that the kernel must move if it reads each input once and writes each output once.
// Why not zeros: hardware may be faster on zeros. Values are uniform in [-1, 1), or for kPositive in [0.5, 1.5); a
// block of 4,096 values is repeated.
// Errors: status() keeps the first allocation error; tensors requested after it are empty.
class KernelTensors {
 public:
  explicit KernelTensors(const Stream& stream) : stream_(stream) {}

  AnyMatrix Matrix(Traffic traffic, int64_t rows, int64_t columns, Storage storage,
                   TensorValues values = TensorValues::kSigned);
  Vector Floats(Traffic traffic, int64_t size, TensorValues values = TensorValues::kSigned);
  // Adds `bytes` for a tensor of which the kernel touches only some rows.
  void Count(double bytes) { bytes_ += bytes; }

  double bytes() const { return bytes_; }
  const absl::Status& status() const { return status_; }

 private:
  std::byte* Allocate(int64_t bytes);

  Stream stream_;
  std::vector<Arena> arenas_;
  double bytes_ = 0;
  absl::Status status_;
};

}  // namespace hadal
