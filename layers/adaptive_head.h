// AdaptiveHead computes the loss of text with an adaptive softmax, and in training its gradients. As in output_head.h,
// Forward also adds the gradients of the weights and stores that of x in `saved`. E, K and P: adaptive_softmax.h.
//
//   nll(t) = −log softmax(z)_t                                        t in band 0;  z = [u·E_0ᵀ | u·Kᵀ]
//   nll(t) = −log softmax(z)_(n_0+c−1) − log softmax(v·E_cᵀ)_t        t in band c;  v = dropout(u·P_c)
//   u = dropout(x)                                                    loss = nll
// A band's products are computed only for the rows whose target is in it. Outside training their bits for a row do
// not depend on the other rows.
// Shapes: adaptive_bands.h, adaptive_softmax.h. Order of accumulation: band 0 and classes in blocks of kAdaptiveRows
// rows (or Workspace::logit_rows(), if that is less), then band 1, 2, … in such blocks of their own rows, ascending. A
// row is in one band, so its gradient has two terms: the head's, then its band's.
// Dropout: sites kResidual (element = row·d + column) and kActivation (the same numbering, columns below w_c).
// Limitation: only on the CPU, in fp32 (device_support.h).
#pragma once

#include <cstdint>

#include "layers/adaptive_softmax.h"
#include "layers/output_head.h"

namespace hadal {

class AdaptiveHead final : public OutputHead {
 public:
  AdaptiveHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override;
  void Forward(const SublayerContext& context, const PartTensors& tensors) const override;

 private:
  // One block of rows: adds to gradients and row losses.
  void ForwardHead(const SublayerContext& context, ConstMatrix x, int64_t first, int64_t rows, Matrix d_x) const;
  void ForwardBand(const SublayerContext& context, const AdaptiveBand& band, ConstMatrix x, ConstTokens rows,
                   Matrix d_x) const;

  AdaptiveSoftmax softmax_;
  double dropout_;
  int64_t width_;
  bool training_;
  ArenaSlice input_slice_, hidden_slice_, loss_slice_, token_slice_;
  float* input_ = nullptr;     // [kAdaptiveRows, d]: u
  float* hidden_ = nullptr;    // v, and after it its gradient
  float* losses_ = nullptr;    // [2, kAdaptiveRows] of a band
  int32_t* tokens_ = nullptr;  // [2, kAdaptiveRows] rows of a band; targets
};

}  // namespace hadal
