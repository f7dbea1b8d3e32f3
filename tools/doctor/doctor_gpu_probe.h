// How fast a GPU multiplies and copies: what two GPUs of one kind must have alike.
//
//   product   C = A·Bᵀ, [n, n] in bf16, by the run's own operation        2 n³ operations
//   copy      [n, n] in bf16 from one place of its memory to another      4 n² bytes, read and written
// n grows until a product takes a millisecond, so that a launch costs nothing beside it, and is 8,192 at most (three
// matrices: 384 MiB).
// Why not a datasheet: ranks are compared with each other; a GPU that is hot, throttled or shared stands out in any
// unit. Not run on a GPU yet.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/stream.h"

namespace hadal {

struct GpuRates {
  double flops = 0;  // a second
  double copy_bytes_per_second = 0;
};

// The n for this GPU.  REQUIRES: a stream on a device. Blocking, some milliseconds.  Errors: ResourceExhausted where
// even a small one does not fit.
absl::StatusOr<int64_t> ProductSize(const Stream& stream);

// REQUIRES: a stream on a device, n ≥ 1. Blocking, half a second.  Errors: ResourceExhausted.
absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n);

}  // namespace hadal
