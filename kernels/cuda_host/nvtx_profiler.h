// NVTX ranges, which Nsight Systems and other tools of NVIDIA show with the kernels. Header-only, from the CUDA
// toolkit; a tool attaches itself when the process starts.
#pragma once

#include <memory>

#include "runtime/profiler.h"

namespace hadal::cuda {

// Null if no tool is attached.
std::unique_ptr<Profiler> MakeNvtxProfiler();

}  // namespace hadal::cuda
