// The CPU kernels of the operations of kernels/. kernels/<op>.h states what each computes; kernels/<op>.cc checks the
// arguments.
//
// Threads split rows, and in backwards blocks of rows. Exceptions: AdamStep splits elements; Attention splits
// (sentence, head) pairs (attention_work.h); EmbeddingBackward splits columns, so that no two threads write the same
// elements of the table; SumOfSquares and TurnScatteredKeys run on the calling thread; products: product.h.
#pragma once

#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/attention.h"
#include "kernels/attention_residual.h"
#include "kernels/cached_attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/head_norm.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"
#include "kernels/top_candidates.h"
#include "kernels/weighted_sum.h"

namespace hadal::cpu {

// Calls kernel(args, begin, end) for each range of Stream::ForRanges.
template <typename Args>
void ForRanges(const Stream& stream, int64_t items, int64_t grain, void (*kernel)(const Args&, int64_t, int64_t),
               const Args& args) {
  stream.ForRanges(items, grain, [&](int64_t begin, int64_t end) { kernel(args, begin, end); });
}

// Defines cpu::Operation(stream, args), which calls `Kernel` so, of the best instruction set.
#define HADAL_RANGE_OPERATION(Operation, Kernel, items, grain)             \
  HWY_EXPORT(Kernel);                                                      \
  void cpu::Operation(const Stream& stream, const Operation##Args& args) { \
    ForRanges(stream, items, grain, HWY_DYNAMIC_DISPATCH(Kernel), args);   \
  }                                                                        \
  static_assert(true)

void ActivationForward(const Stream& stream, const ActivationForwardArgs& args);
void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args);
void AdamStep(const Stream& stream, const AdamArgs& args);
void AttentionForward(const Stream& stream, const AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const AttentionBackwardArgs& args);
void CachedAttention(const Stream& stream, const CachedAttentionArgs& args);
void CrossEntropy(const Stream& stream, const CrossEntropyArgs& args);
void EmbeddingForward(const Stream& stream, const EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const EmbeddingBackwardArgs& args);
void GluForward(const Stream& stream, const GluForwardArgs& args);
void GluBackward(const Stream& stream, const GluBackwardArgs& args);
void HeadNormForward(const Stream& stream, const HeadNormForwardArgs& args);
void HeadNormBackward(const Stream& stream, const HeadNormBackwardArgs& args);
void HeadScaleForward(const Stream& stream, const HeadScaleForwardArgs& args);
void HeadScaleBackward(const Stream& stream, const HeadScaleBackwardArgs& args);
void HyperReadForward(const Stream& stream, const HyperReadForwardArgs& args);
void HyperWriteForward(const Stream& stream, const HyperWriteForwardArgs& args);
void HyperWriteBackward(const Stream& stream, const HyperWriteBackwardArgs& args);
void HyperReadBackward(const Stream& stream, const HyperReadBackwardArgs& args);
void CopyToResiduals(const Stream& stream, const CopyToResidualsArgs& args);
void SumResiduals(const Stream& stream, const SumResidualsArgs& args);
void LinearForward(const Stream& stream, const LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const LinearBackwardInputArgs& args);
void LinearBackwardWeight(const Stream& stream, const LinearBackwardWeightArgs& args);
void ReluBackward(const Stream& stream, const ReluBackwardArgs& args);
void ReadOpenForward(const Stream& stream, const ReadOpenForwardArgs& args);
void ReadOpenBackward(const Stream& stream, const ReadOpenBackwardArgs& args);
void ReadSourcesForward(const Stream& stream, const ReadSourcesForwardArgs& args);
void ReadSourcesBackward(const Stream& stream, const ReadSourcesBackwardArgs& args);
void ResidualNormForward(const Stream& stream, const ResidualNormForwardArgs& args);
void ResidualNormBackward(const Stream& stream, const ResidualNormBackwardArgs& args);
void ShiftScaleForward(const Stream& stream, const ShiftScaleForwardArgs& args);
void ShiftScaleBackward(const Stream& stream, const ShiftScaleBackwardArgs& args);
double SumOfSquares(ConstVector x);
void TopCandidates(const Stream& stream, const TopCandidatesArgs& args);
// Rotates (rotary positions) the keys that ScatterRows has copied into the cache, in place.
void TurnScatteredKeys(const ScatterRowsArgs& args);
void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cpu
