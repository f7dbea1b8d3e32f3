// One kernel at one shape for `hadal bench kernels`: the bytes or operations it needs, and how to launch it.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/storage.h"
#include "runtime/stream.h"
#include "tools/bench/kernel_tensors.h"

namespace hadal {

struct KernelShapes {
  int64_t large_bytes = int64_t{256} << 20;  // of each tensor in the large cases
  std::vector<int64_t> rows = {4096, 16384}, widths = {512, 1024};
  std::vector<int64_t> lengths = {32, 512};   // of attention's sentences; the last is also measured causal
  int64_t head_width = 64;                    // REQUIRES: divides the widths
  int64_t vocabulary = 32000;                 // REQUIRES: no multiple of 7919 (kernel_batch.h)
  int64_t slice_elements = int64_t{1} << 20;  // of a parameter
};

// Launches the kernel once. The tensors must outlive it.
using KernelLaunch = std::function<void()>;
// Returns the launch, or the error of allocating its tensors.
inline absl::StatusOr<KernelLaunch> OrStatus(const KernelTensors& tensors, KernelLaunch launch) {
  if (!tensors.status().ok()) return tensors.status();
  return launch;
}

struct KernelCase {
  std::string kernel;  // "residual_norm forward, dropout"
  std::string shape;   // "4096 x 512"
  Storage storage = Storage::kFloat32;
  bool large = false;      // on tensors of large_bytes
  bool has_goal = false;   // whether the large case should reach kCopyShareGoal
  bool recordable = true;  // whether a device can record it into a graph
  double flops = 0;        // per launch, for kernels bound by arithmetic; 0: measured in bytes
  // Allocates one more set of tensors and returns its launch. Errors: those of allocation.
  std::function<absl::StatusOr<KernelLaunch>(const Stream& stream, KernelTensors& tensors)> prepare;
};

}  // namespace hadal
