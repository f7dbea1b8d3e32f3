// What each CUDA kernel's accesses ask of a GPU's memory, counted on the executor over the shapes of real models
// (d_model 512, d_ff 2,048, heads of 64 and 128 columns, 32,000 words): the rows of kernels/cuda/accesses.md.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/access_counter.h"

namespace hadal::testing {

struct KernelAccesses {
  std::string kernel, shape;
  cuda::LaunchCounts counts;
};

// Runs every kernel once, some in several types and widths.
std::vector<KernelAccesses> CountKernelAccesses();

// The whole of accesses.md.
std::string AccessTable(const std::vector<KernelAccesses>& kernels);

}  // namespace hadal::testing
