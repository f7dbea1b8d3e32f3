// `hadal bench kernels`: the kernels' speed, one at a time, beside the device's own: how fast it copies.
//
// What: first a copy's bandwidth (bytes read and written, the fastest of copies of large_bytes, twice and four times
// that), then each case
//   of memory_bound_cases.h (GB/s and their share of the copy) and of product_cases.h (TFLOP/s).
// How: every case has so many sets of tensors, used in turn, that no cache holds them (rotation_bytes); on a device a
// turn is recorded as a
//   graph where it can be, as in training, so that launching costs little; batches of turns that last batch_seconds or
//   longer are timed between two waits, and the median of `repeats` batches counts.
// The goal, on a device: residual_norm, Adam and cross-entropy on tensors of large_bytes at kCopyShareGoal of the copy.
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
  std::string only;  // measures the kernels whose name begins so
  int64_t rotation_bytes = int64_t{512} << 20;
  double batch_seconds = 0.02;
  int32_t repeats = 7;
  bool json = false;
};

struct KernelSpeed {
  std::string kernel, shape;
  Storage storage = Storage::kFloat32;
  bool large = false, has_goal = false;
  double bytes = 0, flops = 0;  // of one launch; bytes count where flops is 0
  double seconds = 0;           // of one launch, the median
};

struct KernelSpeeds {
  double copy_bytes_per_second = 0;
  std::vector<KernelSpeed> kernels;
};

// Those with a goal come first. `measured`, where given, is called with what there is so far: when the copy is known,
// and with each case more.
// Errors: ResourceExhausted, naming the case whose tensors do not fit; InvalidArgument where no kernel's name begins
// with `only`.
absl::StatusOr<KernelSpeeds> MeasureKernels(const BenchKernelsOptions& options, const Stream& stream,
                                            const std::function<void(const KernelSpeeds&)>& measured = {});

// The same, written as a table, a row as soon as it is measured, or as JSON.
absl::Status RunBenchKernels(const BenchKernelsOptions& options, const Stream& stream, std::ostream& out);

}  // namespace hadal
