// AdaptiveSoftmax: the weights of an adaptive softmax, its own or tied to an adaptive embedding.
// AdaptiveHead: the loss of text with an adaptive softmax, and in training its gradients. As in output_head.h, Forward
// also adds the gradients of the weights and stores that of x in `saved`.
// AdaptiveLogProbabilities: the log-probabilities of all tokens, for decoding.
//
//   z = [u·E_0ᵀ | u·Kᵀ]           K [C, d]: the classes, one for each cluster;  u = dropout(x)
//   log p(t) = log softmax(z)_t                                        t in band 0
//   log p(t) = log softmax(z)_(n_0+c−1) + log softmax(v·E_cᵀ)_t        t in band c;  v = dropout(u·P_cᵀ)
//   loss = nll = −log p(target)
// P_c is [w_c, d]. A softmax tied to an embedding uses the embedding's projection [d, w_c] for P_cᵀ. Sizes and order of
// parameters: adaptive_bands.h. Source: Grave et al. 2017, Baevski and Auli 2019; classes numbered and named as in
// fairseq.
// A band's products are computed only for the rows whose target is in it. Outside training their bits for a row do
// not depend on the other rows.
// Order of accumulation: band 0 and classes in blocks of kAdaptiveRows rows (or Workspace::logit_rows(), if that is
// less), then band 1, 2, … in such blocks of their own rows, ascending. The gradient of a row
// has the term of band 0 and the classes, then, if its target is in another band, that band's.
// Dropout: sites kResidual (element = row·d + column) and kActivation (the same numbering, columns below w_c).
// Limitation: only on the CPU, in fp32 (device_support.h).
// Thread safety: const; one call at a time (scratch).
#pragma once

#include <cstdint>
#include <vector>

#include "layers/adaptive_bands.h"
#include "layers/output_head.h"
#include "layers/parameter_store.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace hadal {

class AdaptiveSoftmax {
 public:
  explicit AdaptiveSoftmax(const ModelPlan& plan);

  const std::vector<AdaptiveBand>& bands() const { return bands_; }
  int64_t clusters() const { return static_cast<int64_t>(bands_.size()) - 1; }
  int64_t head_columns() const { return bands_[0].words + clusters(); }  // of z
  bool tied() const { return classes_ >= 0; }                            // to the embedding

  ConstMatrix Words(const ParameterStore& parameters) const;    // E_0
  ConstMatrix Classes(const ParameterStore& parameters) const;  // K
  Matrix WordsGradient(const ParameterStore& parameters) const;
  Matrix ClassesGradient(const ParameterStore& parameters) const;
  // Parameters: E_c; P_c, or tied P_cᵀ.
  int32_t Table(const AdaptiveBand& band) const { return table_ + TableOfBand(band.index); }
  int32_t Projection(const AdaptiveBand& band) const {
    return table_ + ProjectionOfBand(band.index, static_cast<int32_t>(bands_.size()));
  }

  // h = x·P_cᵀ: h [R, w_c] (=), x [R, d].
  void Project(const Stream& stream, const ParameterStore& parameters, const AdaptiveBand& band, ConstMatrix x,
               Matrix h) const;

 private:
  int32_t sublayer_, table_, classes_;  // classes_: −1 where they are the last rows of the first table
  std::vector<AdaptiveBand> bands_;
};

class AdaptiveHead final : public OutputHead {
 public:
  AdaptiveHead(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  void Bind(const Arena& arena) override { hadal::Bind(arena, input_, hidden_, losses_, tokens_); }
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
  ArenaBuffer<float> input_;     // [kAdaptiveRows, d]: u
  ArenaBuffer<float> hidden_;    // v, and after it its gradient
  ArenaBuffer<float> losses_;    // [2, kAdaptiveRows] of a band
  ArenaBuffer<int32_t> tokens_;  // [2, kAdaptiveRows] rows of a band; targets
};

// log p of all tokens for up to `rows` rows.
// Numerics: fp32; a row's bits do not depend on the other rows.
class AdaptiveLogProbabilities {
 public:
  AdaptiveLogProbabilities(const ModelPlan& plan, int64_t rows, ArenaLayout& layout);
  void Bind(const Arena& arena) { hadal::Bind(arena, classes_, hidden_, losses_, zeros_); }
  // y [B, V] (=): log p of every token for x [B, d]. REQUIRES: B ≤ rows.
  void Compute(const Stream& stream, const ParameterStore& parameters, ConstMatrix x, Matrix y) const;

 private:
  // z = z − logsumexp(z) + added, row by row; `added` may be empty.
  void Normalize(const Stream& stream, Matrix z, Matrix added) const;

  AdaptiveSoftmax softmax_;
  int64_t rows_;
  ArenaBuffer<float> classes_, hidden_, losses_;
  ArenaBuffer<int32_t> zeros_;
};

}  // namespace hadal
