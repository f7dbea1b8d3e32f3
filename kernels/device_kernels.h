// The operations of a device: a table with one function for each operation of this folder, with the same arguments.
//
// Each operation's dispatcher (<op>.cc) checks its arguments and calls the CPU's kernel or, for a stream of a device,
// the table's. So layers call operations in one way on CPU and GPU, and a build without CUDA needs no CUDA symbols.
// cuda_host/operations.h fills the whole table; layers/device_support.h refuses models beyond its limits before a run
// starts.
// Matrices and vectors are in device memory. Tokens, offsets, targets and all numbers are in host memory. An argument
// named device_… is the device address of such values. If it is set, the kernel reads the values there, and the host's
// values only serve the checks. If it is null, the kernel copies the host's values to the device first, which is not
// allowed during a capture (runtime/device.h).
#pragma once

#include <span>

#include "kernels/activation.h"
#include "kernels/adam.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/attention_residual.h"
#include "kernels/cached_attention.h"
#include "kernels/column_merge.h"
#include "kernels/convert.h"
#include "kernels/cross_entropy.h"
#include "kernels/device_batch.h"
#include "kernels/embedding.h"
#include "kernels/head_norm.h"
#include "kernels/hyper_connection.h"
#include "kernels/linear.h"
#include "kernels/muon.h"
#include "kernels/orthogonalize.h"
#include "kernels/residual_norm.h"
#include "kernels/scatter_rows.h"
#include "kernels/shift_scale.h"
#include "kernels/sum_of_squares.h"
#include "kernels/top_candidates.h"
#include "kernels/unfold.h"
#include "kernels/weighted_sum.h"

namespace hadal {

template <typename Args>
using DeviceKernel = void (*)(const Stream& stream, const Args& args);

// Limits of the kernels: columns in residual_norm and embedding, and of a head in attention.
inline constexpr int64_t kWidestDeviceRow = 3072, kWidestDeviceHead = 128;

struct DeviceKernels {
  DeviceKernel<ActivationForwardArgs> activation_forward = nullptr;
  DeviceKernel<ActivationBackwardArgs> activation_backward = nullptr;
  DeviceKernel<AdamArgs> adam_step = nullptr;
  DeviceKernel<AddArgs> add = nullptr;
  DeviceKernel<AttentionForwardArgs> attention_forward = nullptr;
  DeviceKernel<AttentionBackwardArgs> attention_backward = nullptr;
  DeviceKernel<CachedAttentionArgs> cached_attention = nullptr;
  DeviceKernel<ConvertArgs> convert = nullptr;
  DeviceKernel<CopyToResidualsArgs> copy_to_residuals = nullptr;
  DeviceKernel<CrossEntropyArgs> cross_entropy = nullptr;
  DeviceKernel<EmbeddingForwardArgs> embedding_forward = nullptr;
  DeviceKernel<EmbeddingBackwardArgs> embedding_backward = nullptr;
  DeviceKernel<FoldArgs> fold = nullptr;
  DeviceKernel<GluForwardArgs> glu_forward = nullptr;
  DeviceKernel<GluBackwardArgs> glu_backward = nullptr;
  DeviceKernel<HeadNormForwardArgs> head_norm_forward = nullptr;
  DeviceKernel<HeadNormBackwardArgs> head_norm_backward = nullptr;
  DeviceKernel<HeadScaleForwardArgs> head_scale_forward = nullptr;
  DeviceKernel<HeadScaleBackwardArgs> head_scale_backward = nullptr;
  bool (*has_relu_mask)(const Stream& stream, const ReluMaskArgs& args) = nullptr;
  DeviceKernel<HyperReadForwardArgs> hyper_read_forward = nullptr;
  DeviceKernel<HyperReadBackwardArgs> hyper_read_backward = nullptr;
  DeviceKernel<HyperWriteForwardArgs> hyper_write_forward = nullptr;
  DeviceKernel<HyperWriteBackwardArgs> hyper_write_backward = nullptr;
  DeviceKernel<LinearForwardArgs> linear_forward = nullptr;
  DeviceKernel<LinearBackwardInputArgs> linear_backward_input = nullptr;
  // May reorder `products`. REQUIRES: no two products have the same destination. `batch`: gets the second stages of
  // the products' sums over rows, to be launched later (gradient_batch.h); null: this call launches them.
  void (*linear_backward_weights)(const Stream& stream, std::span<LinearBackwardWeightArgs> products,
                                  GradientBatch* batch) = nullptr;
  // Merges that have the same destination are added to it in the order of `merges`.
  void (*merge_columns)(const Stream& stream, std::span<const ColumnMerge> merges) = nullptr;
  DeviceKernel<MuonMomentumArgs> muon_momentum = nullptr;
  DeviceKernel<MuonStepArgs> muon_step = nullptr;
  DeviceKernel<PolynomialArgs> polynomial = nullptr;
  DeviceKernel<ReadOpenForwardArgs> read_open_forward = nullptr;
  DeviceKernel<ReadOpenBackwardArgs> read_open_backward = nullptr;
  DeviceKernel<ReadSourcesForwardArgs> read_sources_forward = nullptr;
  DeviceKernel<ReadSourcesBackwardArgs> read_sources_backward = nullptr;
  DeviceKernel<ReluBackwardArgs> relu_backward = nullptr;
  DeviceKernel<ResidualNormForwardArgs> residual_norm_forward = nullptr;
  DeviceKernel<ResidualNormBackwardArgs> residual_norm_backward = nullptr;
  DeviceKernel<ScaledArgs> scaled = nullptr;
  DeviceKernel<ScatterRowsArgs> scatter_rows = nullptr;
  DeviceKernel<ShiftScaleForwardArgs> shift_scale_forward = nullptr;
  DeviceKernel<ShiftScaleBackwardArgs> shift_scale_backward = nullptr;
  DeviceKernel<SumResidualsArgs> sum_residuals = nullptr;
  DeviceKernel<SumsOfSquaresArgs> sums_of_squares = nullptr;
  DeviceKernel<TopCandidatesArgs> top_candidates = nullptr;
  DeviceKernel<UnfoldArgs> unfold = nullptr;
  DeviceKernel<WeightedSumForwardArgs> weighted_sum_forward = nullptr;
  DeviceKernel<WeightedSumBackwardArgs> weighted_sum_backward = nullptr;

  // Fills a micro-batch's block on the host (device_batch.h).
  void (*write_batch)(const BatchContent& content, const DeviceBatchShape& shape, std::byte* block) = nullptr;
};

// Runs the kernel `of_device` from the table of the stream's device, or `of_cpu` if the stream has no device.
template <typename Args>
void RunKernel(const Stream& stream, DeviceKernel<Args> DeviceKernels::*of_device, DeviceKernel<Args> of_cpu,
               const Args& args) {
  (stream.device() != nullptr ? stream.device()->kernels().*of_device : of_cpu)(stream, args);
}

}  // namespace hadal
