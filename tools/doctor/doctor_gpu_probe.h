// Measures a GPU's product and copy speed, which should be equal on GPUs of one model.
//
//   product   C = A·Bᵀ, [n, n] in bf16, by the operation that training uses   2 n³ operations
//   copy      [n, n] in bf16 within its memory                                4 n² bytes, read and written
// n grows until a product takes a millisecond, so that launch time is negligible, up to 8,192 (three matrices: 384
// MiB).
// Why not a datasheet: ranks are only compared with each other; a GPU that is hot, throttled or shared is slower than
// the others. Not run on a GPU yet.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/stream.h"

namespace hadal {

struct GpuRates {
  double flops = 0;  // per second
  double copy_bytes_per_second = 0;
};

// Returns n for this GPU. REQUIRES: a stream on a device. Blocking, some milliseconds. Errors: ResourceExhausted if
// even the smallest size does not fit.
absl::StatusOr<int64_t> ProductSize(const Stream& stream);

// REQUIRES: a stream on a device, n ≥ 1. Blocking, half a second.  Errors: ResourceExhausted.
absl::StatusOr<GpuRates> MeasureGpu(const Stream& stream, int64_t n);

}  // namespace hadal
