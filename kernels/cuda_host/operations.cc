#include "kernels/cuda_host/operations.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/residual_norm.h"
#include "kernels/cuda_host/batch_block.h"
#include "kernels/cuda_host/operation_functions.h"

namespace hadal::cuda {

const DeviceKernels& Operations() {
  static constexpr DeviceKernels kOperations = {.adam_step = operation::AdamStep,
                                                .add = operation::Add,
                                                .attention_forward = operation::AttentionForward,
                                                .attention_backward = operation::AttentionBackward,
                                                .cached_attention = operation::CachedAttention,
                                                .convert = operation::Convert,
                                                .copy_to_residuals = operation::CopyToResiduals,
                                                .cross_entropy = operation::CrossEntropy,
                                                .embedding_forward = operation::EmbeddingForward,
                                                .embedding_backward = operation::EmbeddingBackward,
                                                .fold = operation::Fold,
                                                .glu_forward = operation::GluForward,
                                                .glu_backward = operation::GluBackward,
                                                .head_scale_forward = operation::HeadScaleForward,
                                                .head_scale_backward = operation::HeadScaleBackward,
                                                .has_relu_mask = operation::HasReluMask,
                                                .hyper_read_forward = operation::HyperReadForward,
                                                .hyper_read_backward = operation::HyperReadBackward,
                                                .hyper_write_forward = operation::HyperWriteForward,
                                                .hyper_write_backward = operation::HyperWriteBackward,
                                                .linear_forward = operation::LinearForward,
                                                .linear_backward_input = operation::LinearBackwardInput,
                                                .linear_backward_weights = operation::LinearBackwardWeights,
                                                .merge_columns = operation::MergeColumns,
                                                .relu_backward = operation::ReluBackward,
                                                .residual_norm_forward = operation::ResidualNormForward,
                                                .residual_norm_backward = operation::ResidualNormBackward,
                                                .scatter_rows = operation::ScatterRows,
                                                .shift_scale_forward = operation::ShiftScaleForward,
                                                .shift_scale_backward = operation::ShiftScaleBackward,
                                                .sum_residuals = operation::SumResiduals,
                                                .sums_of_squares = operation::SumsOfSquares,
                                                .top_candidates = operation::TopCandidates,
                                                .unfold = operation::Unfold,
                                                .weighted_sum_forward = operation::WeightedSumForward,
                                                .weighted_sum_backward = operation::WeightedSumBackward,
                                                .write_batch = WriteBatch,
                                                .learned_gains = true,
                                                .widest_row = kWidestRow,
                                                .widest_head = kWidestHead};
  return kOperations;
}

}  // namespace hadal::cuda
