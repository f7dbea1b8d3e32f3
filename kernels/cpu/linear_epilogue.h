// Epilogues of a linear layer's product on the CPU: bias, ReLU and dropout in forward; ReLU mask and column sums in
// backward. A thread calls them for elements that it has just computed, while they are in cache. Threads: any, on
// disjoint parts.
#pragma once

#include "kernels/cpu/product.h"
#include "kernels/linear.h"

namespace hadal::cpu {

// y = dropout(relu(y + bias)) on a part of args.y; each operation only if args has it.
void ApplyLinearEpilogue(const LinearForwardArgs& args, const ProductPart& part);

// dx = relu_output > 0 ? dx · mask_scale : 0.  REQUIRES: equal shapes.
void ApplyReluMask(const ConstMatrix& relu_output, float mask_scale, const Matrix& dx);

// sums[c] += Σ_rows dy[row, c], rows in ascending order, for every column of dy.
void AddColumnSums(const ConstMatrix& dy, float* sums);

}  // namespace hadal::cpu
