// NVTX ranges, which Nsight Systems and other NVIDIA tools show with the kernels. Header-only, from the CUDA toolkit; a
// tool attaches when the process starts.
#pragma once

#include <memory>

#include "runtime/profiler.h"

namespace hadal::cuda {

// Returns null if no tool is attached.
std::unique_ptr<Profiler> MakeNvtxProfiler();

}  // namespace hadal::cuda
