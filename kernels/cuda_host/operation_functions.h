// Declares the host functions that launch the CUDA kernels of each operation, one .cc file per operation
// (<op>_operation.cc). The DeviceKernels table in operations.cc refers to them. Arguments are those of kernels/<op>.h,
// already checked by its dispatcher. Asynchronous, except SumsOfSquares.
#pragma once

#include <span>

#include "kernels/device_kernels.h"

namespace hadal::cuda::operation {

void AdamStep(const Stream& stream, const hadal::AdamArgs& args);
void Add(const Stream& stream, const hadal::AddArgs& args);
void AttentionForward(const Stream& stream, const hadal::AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const hadal::AttentionBackwardArgs& args);
void CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args);
void Convert(const Stream& stream, const hadal::ConvertArgs& args);
void CopyToResiduals(const Stream& stream, const hadal::CopyToResidualsArgs& args);
void CrossEntropy(const Stream& stream, const hadal::CrossEntropyArgs& args);
void EmbeddingForward(const Stream& stream, const hadal::EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const hadal::EmbeddingBackwardArgs& args);
void Fold(const Stream& stream, const hadal::FoldArgs& args);
void GluForward(const Stream& stream, const hadal::GluForwardArgs& args);
void GluBackward(const Stream& stream, const hadal::GluBackwardArgs& args);
void HeadScaleForward(const Stream& stream, const hadal::HeadScaleForwardArgs& args);
void HeadScaleBackward(const Stream& stream, const hadal::HeadScaleBackwardArgs& args);
void HyperReadForward(const Stream& stream, const hadal::HyperReadForwardArgs& args);
void HyperReadBackward(const Stream& stream, const hadal::HyperReadBackwardArgs& args);
void HyperWriteForward(const Stream& stream, const hadal::HyperWriteForwardArgs& args);
void HyperWriteBackward(const Stream& stream, const hadal::HyperWriteBackwardArgs& args);
bool HasReluMask(const Stream& stream, const hadal::ReluMaskArgs& args);
void LinearForward(const Stream& stream, const hadal::LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const hadal::LinearBackwardInputArgs& args);
void LinearBackwardWeights(const Stream& stream, std::span<hadal::LinearBackwardWeightArgs> products,
                           GradientBatch* batch);
void MergeColumns(const Stream& stream, std::span<const ColumnMerge> merges);
void ReluBackward(const Stream& stream, const hadal::ReluBackwardArgs& args);
void ResidualNormForward(const Stream& stream, const hadal::ResidualNormForwardArgs& args);
void ResidualNormBackward(const Stream& stream, const hadal::ResidualNormBackwardArgs& args);
void ScatterRows(const Stream& stream, const hadal::ScatterRowsArgs& args);
void ShiftScaleForward(const Stream& stream, const hadal::ShiftScaleForwardArgs& args);
void ShiftScaleBackward(const Stream& stream, const hadal::ShiftScaleBackwardArgs& args);
void SumResiduals(const Stream& stream, const hadal::SumResidualsArgs& args);
void SumsOfSquares(const Stream& stream, const hadal::SumsOfSquaresArgs& args);
void TopCandidates(const Stream& stream, const hadal::TopCandidatesArgs& args);
void Unfold(const Stream& stream, const hadal::UnfoldArgs& args);
void WeightedSumForward(const Stream& stream, const hadal::WeightedSumForwardArgs& args);
void WeightedSumBackward(const Stream& stream, const hadal::WeightedSumBackwardArgs& args);

}  // namespace hadal::cuda::operation
