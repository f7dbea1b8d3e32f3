// The product of a linear layer for decoding on the CPU: y = x·Wᵀ, where the bits of a row of y do not depend on the
// number of rows, on the other rows, or on the threads.
//
// oneDNN adds the terms of products of few rows in another order than those of many, so small products had to be filled
// up to 16 rows. A step of beam search has as many rows as live hypotheses, four for one sentence.
// Method: x and W are both contiguous along the terms, so every element is a dot product of vectors; a tile of rows and
// columns stays in registers. Threads split columns, so each weight is read once. Nothing is packed.
// Order of sums: blocks of 512 terms, whose sums are added in ascending order. Within a block lane l of an element's
// vector adds terms l, l + lanes, l + 2·lanes, … in ascending order with fused multiply-adds (without FMA: product,
// then sum); then lanes are added in pairs of neighbours, then those sums, and so on. The order depends on the number
// of terms and the instruction set only.
#pragma once

#include "kernels/linear.h"

namespace hadal::cpu {

// y = relu(x·Wᵀ + bias); bias and ReLU only if args has them. REQUIRES: fp32; no dropout. Blocking; allocates nothing.
void RowProduct(const Stream& stream, const LinearForwardArgs& args);

}  // namespace hadal::cpu
