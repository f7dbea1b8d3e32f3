// The tensors of one measured kernel: memory on a stream's device, filled with numbers that are not zeros, and how many
// bytes a kernel that reads each input once and writes each output once must move.
//
// Why not zeros: hardware may be faster on them. Values are uniform in [-1, 1), a block of 4,096 repeated; kPositive:
// in [0.5, 1.5).
// Errors: the first allocation that fails is kept in status(); tensors asked for after it are empty.
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

// What a kernel does with a tensor: its bytes count once where it is read or written, twice where both, never where it
// is scratch.
enum class Traffic { kScratch, kRead, kWritten, kUpdated };
enum class TensorValues { kSigned, kPositive };

class KernelTensors {
 public:
  explicit KernelTensors(const Stream& stream) : stream_(stream) {}

  AnyMatrix Matrix(Traffic traffic, int64_t rows, int64_t columns, Storage storage,
                   TensorValues values = TensorValues::kSigned);
  Vector Floats(Traffic traffic, int64_t size, TensorValues values = TensorValues::kSigned);
  // As above, of which a kernel touches only some rows: `bytes` of them are what must move.
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
