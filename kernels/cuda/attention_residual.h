// Attention Residuals on the device: the formulas, shapes and rules of kernels/attention_residual.h.
//
// Layout: a team of threads computes a row, eight columns per thread (row_team.h). Three readers share a reading of
// the row's sources: a thread holds its columns of what each of them reads, forward by an online softmax. The other
// readers of a call follow at once and read the row from a cache. 16-byte accesses as in residual_norm.h. Backward,
// the dot products with a source are computed twice: for their weighted mean, then for dx.
// Memory traffic: as kernels/attention_residual.h states, and in each backward x (or P) once more: a second kernel
// reads it for the gradients of w ⊙ g of all readers, which would not fit in the first one's registers.
// Numerics: fp32; exponentials are FastExp. Sums along a row as in row_team.h; over sources and readers in the
// order of kernels/attention_residual.h. Gradients of w ⊙ g: a block of kReaderRowBlock rows by source, then by
// row, ascending; then the first block and the sum of the others (column_merge.h). Deterministic: no order depends
// on other readers of the call or, but for sums over rows, on R.
// REQUIRES: width ≤ kMaxTeamWidth (aborts otherwise). Asynchronous.
#pragma once

#include "kernels/attention_residual.h"
#include "kernels/cuda/device_view.h"

namespace hadal::cuda {

void ReadSourcesForward(StreamHandle stream, const ReadSourcesForwardArgs& args);
void ReadOpenForward(StreamHandle stream, const ReadOpenForwardArgs& args);
void ReadOpenBackward(StreamHandle stream, const ReadOpenBackwardArgs& args);
void ReadSourcesBackward(StreamHandle stream, const ReadSourcesBackwardArgs& args);

}  // namespace hadal::cuda
