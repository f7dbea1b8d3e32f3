// What each CUDA kernel's accesses ask of a GPU's memory, counted on the emulator over the shapes of real models
// (d_model 512, d_ff 2,048, heads of 64 and 128 columns, 32,000 words): the rows of kernels/cuda/accesses.md.
#pragma once

#include "tests/support/access_counter.h"
#include "tests/support/kernel_emulator.h"

namespace hadal::testing {

// The shape of residual_norm's cases with a second stream; without one it ends at the comma.
inline constexpr char kSecondStreamShape[] = "64 x 512, second stream";

struct KernelAccesses {
  std::string kernel, shape;
  cuda::LaunchCounts counts;
};

// One operation with arguments: `launch` launches each of `kernels` once.
struct KernelCase {
  std::string shape;
  std::vector<std::string> kernels;
  std::function<void(cuda::StreamHandle)> launch;
};

// Calls visit for every kernel, for some in several types and widths. Arguments are in the emulator's memory.
void ForEachKernel(cuda::KernelEmulator& emulator, const std::function<void(const KernelCase&)>& visit);

// The same for cases with longer loops and absent arguments, which reach what the others leave out.
void ForEachFurtherCase(cuda::KernelEmulator& emulator, const std::function<void(const KernelCase&)>& visit);

// Runs each kernel once.
std::vector<KernelAccesses> CountKernelAccesses();

// The whole of accesses.md.
std::string AccessTable(const std::vector<KernelAccesses>& kernels);

}  // namespace hadal::testing
