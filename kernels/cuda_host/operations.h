// The table of the CUDA kernels (kernels/device_kernels.h), for every device that can launch them.
//
// An operation takes the arguments of kernels/<op>.h, copies host values that the kernel reads to the device, and
// launches. Sentence offsets are converted to tiles (attention) or positions (embedding); tokens are grouped
// (embedding's gradient). Asynchronous, except SumsOfSquares, whose result is on the host.
#pragma once

#include <span>

#include "kernels/device_kernels.h"

namespace hadal::cuda {

const DeviceKernels& Operations();

// The host functions of operations that need much more than a launch: products, scratch, several values in launch
// memory. One .cc file per operation (<op>_operation.cc). The table refers to them, and for other operations to the
// kernels' own launch functions (kernels/cuda/<op>.h). The dispatcher has checked the arguments.
namespace operation {

void AttentionForward(const Stream& stream, const hadal::AttentionForwardArgs& args);
void AttentionBackward(const Stream& stream, const hadal::AttentionBackwardArgs& args);
void CachedAttention(const Stream& stream, const hadal::CachedAttentionArgs& args);
void EmbeddingForward(const Stream& stream, const hadal::EmbeddingForwardArgs& args);
void EmbeddingBackward(const Stream& stream, const hadal::EmbeddingBackwardArgs& args);
void Fold(const Stream& stream, const hadal::FoldArgs& args);
bool HasReluMask(const Stream& stream, const hadal::ReluMaskArgs& args);
void LinearForward(const Stream& stream, const hadal::LinearForwardArgs& args);
void LinearBackwardInput(const Stream& stream, const hadal::LinearBackwardInputArgs& args);
void LinearBackwardWeights(const Stream& stream, std::span<hadal::LinearBackwardWeightArgs> products,
                           GradientBatch* batch);
void ReluBackward(const Stream& stream, const hadal::ReluBackwardArgs& args);
void ResidualNormForward(const Stream& stream, const hadal::ResidualNormForwardArgs& args);
void ResidualNormBackward(const Stream& stream, const hadal::ResidualNormBackwardArgs& args);
void SumsOfSquares(const Stream& stream, const hadal::SumsOfSquaresArgs& args);
void Unfold(const Stream& stream, const hadal::UnfoldArgs& args);

}  // namespace operation

}  // namespace hadal::cuda
