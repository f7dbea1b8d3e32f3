// The memory-bound kernels at each shape, for `hadal bench kernels`.
//
// Bytes that each kernel must move: each input read once, each output written once. b: 2 in bf16, 4 in fp32; R rows, W
// columns.
//   residual_norm forward    4·b·R·W + 8·R + 12·W        x, y, s, n; mean, rstd; bias, scale, shift
//   residual_norm backward   4·b·R·W + 8·R + 28·W        dn, s, dx, dy; mean, rstd; scale, and three sums of columns
//                                                        that are added to
//   adam                     28·n, with a bf16 copy 30·n     p, m, v read and written, g read (fp32); the copy written
//   cross_entropy            2·b·R·V + 12·R              logits read, gradients written over them; target, loss, nll
//   embedding forward        b·R·W + 8·R + b·T·W + 4·P·W     x; token, position; rows of the T tokens and the P
//                                                            positions that occur
//   embedding backward       b·R·W + 4·R + 8·T·W         dx; rows grouped by token; the table's gradient, read and
//                                                        written
//   relu_backward            3·b·R·W                     y; dx read and written
//   convert                  6·R·W                       one side fp32, the other bf16
//   add                      12·n                        sum read and written, values
//   sum_of_squares           4·n                         x
#pragma once

#include <vector>

#include "runtime/stream.h"
#include "tools/bench/kernel_case.h"

namespace hadal {

// Returns the cases that `stream` can run: bf16 activations only on a device.
std::vector<KernelCase> MemoryBoundCases(const KernelShapes& shapes, const Stream& stream);

}  // namespace hadal
