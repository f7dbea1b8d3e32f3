// NVTX ranges: what Nsight Systems and other tools of NVIDIA show over the kernels. Header-only, of the CUDA toolkit; a tool attaches itself
// when the process starts.
#pragma once

#include <memory>

#include "runtime/profiler.h"

namespace hadal::cuda {

// Null where no tool is attached.
std::unique_ptr<Profiler> MakeNvtxProfiler();

}  // namespace hadal::cuda
