// What a device can compute: a table of the kernels of this folder, one function an operation, with the same arguments.
//
// Each operation's dispatcher (<op>.cc) checks its arguments and then calls the CPU's kernel, or, on a stream of a device, the one of this
// table. So the programs above are one text for both, and a build without CUDA refers to no symbol of it.
// Null: the device has no such kernel; layers/device_support.h refuses what would need one before a run starts. device/operations.h fills it.
// Arguments are those of the operation's header, with these rules: matrices and vectors lie on the device; tokens, offsets and targets, and
// every number in the struct, are the host's. Fields named …place… are where the device finds such values already; the launch then reads
// them there, and the host's serve the checks.
#pragma once

#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/cached_attention.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/device_batch.h"
#include "kernels/embedding.h"
#include "kernels/head_scale.h"
#include "kernels/linear.h"
#include "kernels/residual_norm.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"
#include "kernels/sum_of_squares.h"
#include "kernels/top_candidates.h"
#include "kernels/weighted_sum.h"

namespace hadal {

template <typename Args>
using DeviceKernel = void (*)(const Stream& stream, const Args& args);

struct DeviceKernels {
  DeviceKernel<AdamArgs> adam_step = nullptr;
  DeviceKernel<AddArgs> add = nullptr;
  DeviceKernel<AttentionForwardArgs> attention_forward = nullptr;
  DeviceKernel<AttentionBackwardArgs> attention_backward = nullptr;
  DeviceKernel<CachedAttentionArgs> cached_attention = nullptr;
  DeviceKernel<ConvertArgs> convert = nullptr;
  DeviceKernel<CrossEntropyArgs> cross_entropy = nullptr;
  DeviceKernel<EmbeddingForwardArgs> embedding_forward = nullptr;
  DeviceKernel<EmbeddingBackwardArgs> embedding_backward = nullptr;
  DeviceKernel<HeadScaleForwardArgs> head_scale_forward = nullptr;
  DeviceKernel<HeadScaleBackwardArgs> head_scale_backward = nullptr;
  bool (*has_relu_mask)(const Stream& stream, const ReluMaskArgs& args) = nullptr;
  DeviceKernel<LinearForwardArgs> linear_forward = nullptr;
  DeviceKernel<LinearBackwardInputArgs> linear_backward_input = nullptr;
  DeviceKernel<LinearBackwardWeightArgs> linear_backward_weight = nullptr;
  DeviceKernel<ReluBackwardArgs> relu_backward = nullptr;
  DeviceKernel<ResidualNormForwardArgs> residual_norm_forward = nullptr;
  DeviceKernel<ResidualNormBackwardArgs> residual_norm_backward = nullptr;
  DeviceKernel<ScatterRowsArgs> scatter_rows = nullptr;
  DeviceKernel<ShiftScaleForwardArgs> shift_scale_forward = nullptr;
  DeviceKernel<ShiftScaleBackwardArgs> shift_scale_backward = nullptr;
  DeviceKernel<SumsOfSquaresArgs> sums_of_squares = nullptr;
  DeviceKernel<TopCandidatesArgs> top_candidates = nullptr;
  DeviceKernel<WeightedSumForwardArgs> weighted_sum_forward = nullptr;
  DeviceKernel<WeightedSumBackwardArgs> weighted_sum_backward = nullptr;

  // Fills a micro-batch's block on the host (device_batch.h).
  void (*write_batch)(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block) = nullptr;

  // What those that exist can take.
  bool learned_gains = false;  // residual_norm with ω or g
  int64_t widest_row = 0;      // of residual_norm and embedding
  int64_t widest_head = 0;     // of attention
};

}  // namespace hadal
