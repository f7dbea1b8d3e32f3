// The product of a linear layer for decoding on the CPU: y = x·Wᵀ, where the bits of a row of y do not depend on the
// number of rows, on the other rows, or on the threads.
//
// oneDNN adds the terms of products of few rows in another order than those of many, so with oneDNN small products
// would have to be padded to 16 rows. A step of beam search has as many rows as live hypotheses, four for one sentence.
// Method: columns of y are the lanes of a vector. Weights are transposed: in registers for up to 8 rows, otherwise into
// a panel on the stack that all rows of x then pass (small_product-inl.h). Threads split columns, so each weight is
// read once.
// Order of sums: every element is one chain of fused multiply-adds (without FMA: product, then sum) in ascending order
// of the terms, starting from 0.
#pragma once

#include "kernels/linear.h"

namespace hadal::cpu {

// y = relu(x·Wᵀ + bias); bias and ReLU only if args has them. REQUIRES: fp32; no dropout. Blocking; allocates
// nothing, and uses 68 KiB of each thread's stack.
void RowProduct(const Stream& stream, const LinearForwardArgs& args);

}  // namespace hadal::cpu
