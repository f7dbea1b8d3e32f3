// Several residual streams (mHC) on the device: the formulas, shapes and constants of kernels/hyper_connection.h.
//
// A warp computes one row. Sinkhorn's matrix is in registers, two elements a lane; in the backward also the matrix
// after each of the 40 divisions. A permutation's weight is in the lane of its number.
// Memory traffic: as kernels/hyper_connection.h states, if a row's second reading of its residuals (for u and the
// update of dx, after sums over the row) comes from a cache.
// Numerics: fp32. A sum over a row: lane l adds columns l, l + 32, …, then the lanes as a butterfly; sums of
// Sinkhorn's columns: elements i and i + 4, then as a butterfly; of its rows, and of all weights of permutations: a
// butterfly; an element of H_res adds its permutations in ascending order. Gradients of gates and bias: a warp adds
// rows w, w + 8, … of a block of kHyperRowBlock, warps are added in ascending order, then blocks (column_merge.h). The
// order depends only on the shape. SumResiduals adds residuals i and i + 4, then i and i + 2, then both. Asynchronous.
#pragma once

#include "kernels/cuda/device_view.h"
#include "kernels/hyper_connection.h"

namespace hadal::cuda {

void HyperReadForward(StreamHandle stream, const HyperReadForwardArgs& args);
void HyperWriteForward(StreamHandle stream, const HyperWriteForwardArgs& args);
void HyperWriteBackward(StreamHandle stream, const HyperWriteBackwardArgs& args);
void HyperReadBackward(StreamHandle stream, const HyperReadBackwardArgs& args);
void CopyToResiduals(StreamHandle stream, const CopyToResidualsArgs& args);
void SumResiduals(StreamHandle stream, const SumResidualsArgs& args);

}  // namespace hadal::cuda
