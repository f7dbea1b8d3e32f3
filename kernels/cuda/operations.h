// The launchers of the kernels whose arguments are those of kernels/<op>.h. kernels/<op>.h has formulas, shapes and
// rules; here stands what is particular to the device: storage, layout, memory traffic, order of sums.
//
// Numerics: fp32; deterministic: the order of a sum depends only on the shape. A "butterfly" adds the lanes of a warp.
// Exponentials are those of CUDA's library where nothing else is said. All are asynchronous.
#pragma once

#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/attention_residual.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/cuda/device_view.h"
#include "kernels/head_norm.h"
#include "kernels/hyper_connection.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"
#include "kernels/top_candidates.h"
#include "kernels/weighted_sum.h"

namespace hadal::cuda {

// All matrices are float or BFloat16. REQUIRES: an active dropout has its device_position (runtime/random.h).
void ActivationForward(StreamHandle stream, const ActivationForwardArgs& args);
void ActivationBackward(StreamHandle stream, const ActivationBackwardArgs& args);

// Adam over a flat shard, in one pass over memory, with the operations of kernels/cpu/adam.cc in the same order, and
//   - unscale and clip: both are part of gradient_scale, which the host computes from the step's norm;
//   - write-back: the updated parameter is also written as BFloat16, the copy that products read.
// The scalars are read from device memory, so that a captured graph can be replayed for another step.
// With the write-back a parameter moves 30 bytes (16 read, 14 written), which should take longer than the
// arithmetic (not measured). 16-byte accesses if every pointer is 16-byte aligned.
// `scalars`: one; those of `args` are not used.
void AdamStep(StreamHandle stream, const AdamArgs& args, DevicePointer<const AdamScalars> scalars);

void Add(StreamHandle stream, const AddArgs& args);

// Attention Residuals. Layout: a team of threads computes a row, eight columns per thread (row_team.h). Three readers
// share a reading of the row's sources: a thread holds its columns of what each of them reads, forward by an online
// softmax. A call's further readers are served right after, while the row is in a cache. 16-byte accesses as in
// residual_norm.h. Backward, the dot products with a source are computed twice: for their weighted mean, then for dx.
// Memory traffic: as kernels/attention_residual.h states, and in each backward x (or P) once more: a second kernel
// reads it for the gradients of w ⊙ g of all readers, which would not fit in the first one's registers.
// Numerics: exponentials are FastExp. Sums along a row as in row_team.h; over sources and readers in the order of
// kernels/attention_residual.h. Gradients of w ⊙ g: within
// a block of kReaderRowBlock rows, the terms are added source by source, of each source row by row, ascending; then the
// sum of all other blocks is added to the first block's (column_merge.h). No order depends on other readers of the
// call or, but for sums over rows, on R.
// REQUIRES: width ≤ kMaxTeamWidth (aborts otherwise).
void ReadSourcesForward(StreamHandle stream, const ReadSourcesForwardArgs& args);
void ReadOpenForward(StreamHandle stream, const ReadOpenForwardArgs& args);
void ReadOpenBackward(StreamHandle stream, const ReadOpenBackwardArgs& args);
void ReadSourcesBackward(StreamHandle stream, const ReadSourcesBackwardArgs& args);

// Eight columns per thread; 16-byte accesses if every row is 16-byte aligned and the width is a multiple of 8.
void Convert(StreamHandle stream, const ConvertArgs& args);

// Logits are float or BFloat16. A block computes a row and reads the vocabulary twice: maximum and sum of exponentials
// online, then the gradient in place. The second read should hit the L2 cache, which has room for the rows in progress.
// Nothing else is stored.
// Numerics: a block has 256 threads, or 1,024 for vocabularies of 8,192 and more. A thread adds eight columns of every
// 2,048 (or 8,192) in ascending order and rescales its sum once for the eight. The lanes of a warp are added as a
// butterfly, then the warps. Exponentials have an error of one or two ulp for float logits; for BFloat16 they are
// ex2.approx, whose error is far below the logits' rounding. A NaN in a row makes its loss, nll and gradient NaN.
// The gradient's scale is read from device_gradient_scale; null: loss only. REQUIRES: device_targets; there 0 ≤
// target < V, or −1 for a padding row, whose loss, nll and gradient are 0.
void CrossEntropy(StreamHandle stream, const CrossEntropyArgs& args);

// value and y (or dy) are <float, float>, <BFloat16, BFloat16> or <BFloat16, float>.
void GluForward(StreamHandle stream, const GluForwardArgs& args);
void GluBackward(StreamHandle stream, const GluBackwardArgs& args);

// One warp has one head of a row, eight columns a lane; a sum over columns adds a lane's in ascending order and the
// lanes as a butterfly. d_scale and d_shift: a warp of a block of kHeadNormRowBlock rows adds (row, head) pairs w,
// w + 8, …; then the warps in ascending order, then the blocks as column_merge.h.
inline constexpr int64_t kWidestHeadNorm = 256;
void HeadNormForward(StreamHandle stream, const HeadNormForwardArgs& args);
void HeadNormBackward(StreamHandle stream, const HeadNormBackwardArgs& args);

// A head's sum runs over blocks of kHeadScaleRowBlock rows. In a block thread t adds eights of columns t, t + 256, … in
// the order of rows; the lanes of a warp are added as a butterfly, then warps in ascending order. One warp per head
// adds the blocks: lane l adds blocks l, l + 32, …, then the lanes are added as a butterfly.
void HeadScaleForward(StreamHandle stream, const HeadScaleForwardArgs& args);
void HeadScaleBackward(StreamHandle stream, const HeadScaleBackwardArgs& args);

// Several residual streams (mHC). A warp computes one row. Sinkhorn's matrix is in registers, two elements a lane; in
// the backward also the matrix after each of the 40 divisions. A permutation's weight is in the lane of its number.
// Memory traffic: as kernels/hyper_connection.h states, if a row's second reading of its residuals (for u and the
// update of dx, after sums over the row) comes from a cache.
// Numerics: a sum over a row: lane l adds columns l, l + 32, …, then the lanes as a butterfly; sums of Sinkhorn's
// columns: elements i and i + 4, then as a butterfly; of its rows, and of all weights of permutations: a butterfly; an
// element of H_res adds its permutations in ascending order. Gradients of gates and bias: a warp adds rows w, w + 8, …
// of a block of kHyperRowBlock, warps are added in ascending order, then blocks (column_merge.h). SumResiduals adds
// residuals i and i + 4, then i and i + 2, then both.
void HyperReadForward(StreamHandle stream, const HyperReadForwardArgs& args);
void HyperWriteForward(StreamHandle stream, const HyperWriteForwardArgs& args);
void HyperWriteBackward(StreamHandle stream, const HyperWriteBackwardArgs& args);
void HyperReadBackward(StreamHandle stream, const HyperReadBackwardArgs& args);
void CopyToResiduals(StreamHandle stream, const CopyToResidualsArgs& args);
void SumResiduals(StreamHandle stream, const SumResidualsArgs& args);

// Muon's parts that are not products. Each is one pass over memory with the CPU's operations in the same order.
// Memory traffic of an element: momentum 16 bytes, step 12 (with the bf16 copy 14), scaled 8 (to bf16 6), polynomial 12
// (to bf16 10). 16-byte accesses if every pointer is 16-byte aligned; the polynomial's are single.
void MuonMomentum(StreamHandle stream, const MuonMomentumArgs& args);
void MuonStep(StreamHandle stream, const MuonStepArgs& args);
// REQUIRES: dense matrices.
void Scaled(StreamHandle stream, const ScaledArgs& args);
void Polynomial(StreamHandle stream, const PolynomialArgs& args);

// Reads args.device_index. One element per thread.
void ScatterRows(StreamHandle stream, const ScatterRowsArgs& args);

// x and y are <float, float>, <float, BFloat16> or <BFloat16, BFloat16>.
// A block adds kShiftScaleRowBlock rows: a row is cut into runs of eight columns, and thread t adds runs t, t + 256, …
// of the first row, then of the next. A warp is added as a butterfly, then warps in ascending order. Then one warp adds
// the blocks in double.
void ShiftScaleForward(StreamHandle stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(StreamHandle stream, const ShiftScaleBackwardArgs& args);

// V < 2^31. A block searches a row K times, each time for the largest logit after the last one found; of equal logits
// the lower column is first. K is small, and a row of logits stays in the cache. A NaN is never chosen.
void TopCandidates(StreamHandle stream, const TopCandidatesArgs& args);

// x and y are <float, float>, <float, BFloat16> or <BFloat16, BFloat16>.
// A block adds kWeightedSumRowBlock rows of one term: thread t adds runs of eight columns t, t + 256, … in the order of
// rows, a warp is added as a butterfly, then warps in ascending order. Then one thread per term adds the term's blocks
// in ascending order, in double. REQUIRES: K ≤ 65,535.
void WeightedSumForward(StreamHandle stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(StreamHandle stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cuda
