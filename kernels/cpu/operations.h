// The CPU kernels of the operations of kernels/, but for attention's and the linear layers'. kernels/<op>.h states what
// each computes; kernels/<op>.cc checks the arguments.
//
// Threads split rows, and in backwards blocks of rows. Exceptions: AdamStep splits elements; EmbeddingBackward splits
// columns, so that no two threads write the same elements of the table; SumOfSquares runs on the calling thread.
#pragma once

#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/attention_residual.h"
#include "kernels/cross_entropy.h"
#include "kernels/embedding.h"
#include "kernels/glu.h"
#include "kernels/head_norm.h"
#include "kernels/head_scale.h"
#include "kernels/hyper_connection.h"
#include "kernels/residual_norm.h"
#include "kernels/shift_scale.h"
#include "kernels/top_candidates.h"
#include "kernels/weighted_sum.h"

namespace hadal::cpu {

void ActivationForward(const Stream& stream, const ActivationForwardArgs& args);
void ActivationBackward(const Stream& stream, const ActivationBackwardArgs& args);
void AdamStep(const Stream& stream, const AdamArgs& args);
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
void WeightedSumForward(const Stream& stream, const WeightedSumForwardArgs& args);
void WeightedSumBackward(const Stream& stream, const WeightedSumBackwardArgs& args);

}  // namespace hadal::cpu
