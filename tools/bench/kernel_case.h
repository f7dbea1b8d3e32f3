// One kernel at one shape as `hadal bench kernels` measures it: what it must move or compute, and how it is launched.
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
  int64_t large_bytes = int64_t{256} << 20;  // of each tensor of the cases on large tensors
  std::vector<int64_t> rows = {4096, 16384}, widths = {512, 1024};
  std::vector<int64_t> lengths = {32, 512};   // of attention's sentences; the last is measured causal too
  int64_t head_width = 64;                    // REQUIRES: divides the widths
  int64_t vocabulary = 32000;                 // REQUIRES: no multiple of 7919 (kernel_batch.h)
  int64_t slice_elements = int64_t{1} << 20;  // of a parameter
};

// Launches the kernel once, on tensors that must outlive it.
using KernelLaunch = std::function<void()>;
// The launch, or why its tensors could not be had.
inline absl::StatusOr<KernelLaunch> OrStatus(const KernelTensors& tensors, KernelLaunch launch) {
  if (!tensors.status().ok()) return tensors.status();
  return launch;
}

struct KernelCase {
  std::string kernel;  // "residual_norm forward, dropout"
  std::string shape;   // "4096 x 512"
  Storage storage = Storage::kFloat32;
  bool large = false;      // on tensors of large_bytes
  bool has_goal = false;   // there it should come near a copy's speed
  bool recordable = true;  // into a graph of the device
  double flops = 0;        // of those that are measured by their arithmetic; 0: by their bytes
  // Takes one more set of tensors. Errors: what allocation fails with.
  std::function<absl::StatusOr<KernelLaunch>(const Stream& stream, KernelTensors& tensors)> prepare;
};

}  // namespace hadal
