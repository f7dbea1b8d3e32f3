// The compute-bound kernels at each shape, for `hadal bench kernels`.
//
// Operations of each; a multiply-add is two. P: pairs of a query and a key of one sentence (causal: the key not later
// than the query); H heads of width D. Softmax, dropout and other epilogues are not counted: a kernel should hide them.
//   attention forward    4·P·H·D      Q·Kᵀ, P·V
//   attention backward   10·P·H·D     Q·Kᵀ again, dO·Vᵀ, and the gradients of q, k and v
//   linear               2·R·in·out   each of its three products
#pragma once

#include <vector>

#include "runtime/stream.h"
#include "tools/bench/kernel_case.h"

namespace hadal {

// Returns the cases that `stream` can run: bf16 only on a device.
std::vector<KernelCase> ProductCases(const KernelShapes& shapes, const Stream& stream);

}  // namespace hadal
