// Declares the host functions of operations that need more than a launch: products, scratch, or host values copied to
// launch memory. One .cc file per operation (<op>_operation.cc). The DeviceKernels table in operations.cc refers to
// them, and for other operations to the kernels' own launch functions (kernels/cuda/<op>.h). Arguments are those of
// kernels/<op>.h, already checked by its dispatcher. Asynchronous, except SumsOfSquares.
#pragma once

#include <span>

#include "kernels/device_kernels.h"

namespace hadal::cuda::operation {

void AdamStep(const Stream& stream, const hadal::AdamArgs& args);
void AttentionForward(const Stream& stream, const hadal::AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const hadal::AttentionBackwardArgs& args);
void CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args);
void CrossEntropy(const Stream& stream, const hadal::CrossEntropyArgs& args);
void EmbeddingForward(const Stream& stream, const hadal::EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const hadal::EmbeddingBackwardArgs& args);
void Fold(const Stream& stream, const hadal::FoldArgs& args);
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
void SumsOfSquares(const Stream& stream, const hadal::SumsOfSquaresArgs& args);
void Unfold(const Stream& stream, const hadal::UnfoldArgs& args);

}  // namespace hadal::cuda::operation
