// `hadal bench kernels` measures each kernel's speed and compares it with the bandwidth of a memory copy.
//
// What: first a copy's bandwidth (bytes read plus written; the fastest of copies of 1, 2 and 4 times large_bytes), then
// each case of memory_bound_cases.cc (GB/s and share of the copy's bandwidth) and product_cases.cc (TFLOP/s).
// How: every case rotates through enough sets of tensors (rotation_bytes) that no cache holds them. On a device one
// rotation is recorded as a graph where possible, as in training, to hide launch overhead. A batch is as many rotations
// as take batch_seconds, timed between two synchronisations; the result is the median of `repeats` batches.
// Goal on a device: residual_norm, Adam and cross-entropy reach kCopyShareGoal of the copy's bandwidth on tensors of
// large_bytes.
// Threads: the stream's. Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "tools/bench/kernel_case.h"

namespace hadal {

inline constexpr double kCopyShareGoal = 0.85;

struct BenchKernelsOptions {
  KernelShapes shapes;
  std::string only;  // measures only kernels whose names begin with this
  int64_t rotation_bytes = int64_t{512} << 20;
  double batch_seconds = 0.02;
  int32_t repeats = 7;
  bool json = false;
};

struct KernelSpeed {
  std::string kernel, shape;
  Storage storage = Storage::kFloat32;
  bool large = false, has_goal = false;  // those of KernelCase
  double bytes = 0, flops = 0;           // per launch; bytes are reported if flops is 0
  double seconds = 0;                    // per launch, median of the batches
  double cpu_seconds = 0;                // of the process's threads, likewise
};

struct KernelSpeeds {
  double copy_bytes_per_second = 0;
  std::vector<KernelSpeed> kernels;
};

// Measures all cases, those with a goal first. `measured` is called with the results so far, after the copy and after
// each case; it may be empty.
// Errors: ResourceExhausted, naming the case whose tensors do not fit; InvalidArgument if no kernel's name begins with
// `only`.
absl::StatusOr<KernelSpeeds> MeasureKernels(const BenchKernelsOptions& options, const Stream& stream,
                                            const std::function<void(const KernelSpeeds&)>& measured = {});

// Measures and writes a table, row by row as results arrive, or JSON. Errors: those of MeasureKernels.
absl::Status RunBenchKernels(const BenchKernelsOptions& options, const Stream& stream, std::ostream& out);

}  // namespace hadal
