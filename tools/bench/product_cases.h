// The kernels whose speed is arithmetic's, at each shape, for `hadal bench kernels`.
//
// Operations of each, a multiplication and an addition being two. P: pairs of a query and a key of one sentence
// (causal: of no later position), H heads of width D; softmax, dropout and other epilogues are not counted: they are
// what a kernel should hide.
//   attention forward    4·P·H·D      Q·Kᵀ, P·V
//   attention backward   10·P·H·D     Q·Kᵀ again, dO·Vᵀ, and the gradients of q, k and v
//   linear               2·R·in·out   each of its three products
#pragma once

#include <vector>

#include "runtime/stream.h"
#include "tools/bench/kernel_case.h"

namespace hadal {

// Those that can run on `stream`: bf16 on a device only.
std::vector<KernelCase> ProductCases(const KernelShapes& shapes, const Stream& stream);

}  // namespace hadal
