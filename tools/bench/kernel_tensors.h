// The tensors of one measured kernel: memory on a stream's device, filled with non-zero numbers, and the number of
// bytes that the kernel must move if it reads each input once and writes each output once.
//
// Why not zeros: hardware may be faster on them. Values are uniform in [-1, 1), or for kPositive in [0.5, 1.5); a block
// of 4,096 is repeated.
// Errors: status() keeps the first allocation error; tensors requested after it are empty.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// How a kernel uses a tensor. Its bytes count once if it is read or written, twice if it is updated, and not at all if
// it is scratch.
enum class Traffic { kScratch, kRead, kWritten, kUpdated };
enum class TensorValues { kSigned, kPositive };

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
