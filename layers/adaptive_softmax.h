// AdaptiveSoftmax: the weights of an adaptive softmax, its own or tied to an adaptive embedding.
// AdaptiveLogProbabilities: the log-probabilities of all tokens, for decoding.
//
//   z = [x·E_0ᵀ | x·Kᵀ]           K [C, d]: the classes, one for each cluster
//   log p(v) = log_softmax(z)_v                                            v in band 0
//   log p(v) = log_softmax(z)_(n_0+c−1) + log_softmax(h_c·E_cᵀ)_v,  h_c = x·P_cᵀ   v in band c
// P_c is [w_c, d]. A softmax tied to an embedding uses the embedding's projection [d, w_c] for P_cᵀ. Sizes and order of
// parameters: adaptive_bands.h. Source: Grave et al. 2017, Baevski and Auli 2019; classes numbered and named as in
// fairseq.
// Limitation: only on the CPU (device_support.h).
// Thread safety: const; one call at a time (scratch).
#pragma once

#include <cstdint>
#include <vector>

#include "layers/adaptive_bands.h"
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

  ConstMatrix Words(const ParameterStore& parameters) const;                                 // E_0
  ConstMatrix Classes(const ParameterStore& parameters) const;                               // K
  ConstMatrix Table(const ParameterStore& parameters, const AdaptiveBand& band) const;       // E_c
  ConstMatrix Projection(const ParameterStore& parameters, const AdaptiveBand& band) const;  // P_c, or tied P_cᵀ
  // The gradients of these four.
  Matrix WordsGradient(const ParameterStore& parameters) const;
  Matrix ClassesGradient(const ParameterStore& parameters) const;
  Matrix TableGradient(const ParameterStore& parameters, const AdaptiveBand& band) const;
  Matrix ProjectionGradient(const ParameterStore& parameters, const AdaptiveBand& band) const;

  // h = x·P_cᵀ: h [R, w_c] (=), x [R, d].
  void Project(const Stream& stream, const ParameterStore& parameters, const AdaptiveBand& band, ConstMatrix x,
               Matrix h) const;

 private:
  int32_t sublayer_, table_, classes_;  // classes_: −1 where they are the last rows of the first table
  std::vector<AdaptiveBand> bands_;
};

// log p of all tokens for up to `rows` rows.
// Numerics: fp32; a row's bits do not depend on the other rows.
class AdaptiveLogProbabilities {
 public:
  AdaptiveLogProbabilities(const ModelPlan& plan, int64_t rows, ArenaLayout& layout);
  void Bind(const Arena& arena);
  // y [B, V] (=): log p of every token for x [B, d]. REQUIRES: B ≤ rows.
  void Compute(const Stream& stream, const ParameterStore& parameters, ConstMatrix x, Matrix y) const;

 private:
  // z = z − logsumexp(z) + added, row by row; `added` may be empty.
  void Normalize(const Stream& stream, Matrix z, Matrix added) const;

  AdaptiveSoftmax softmax_;
  int64_t rows_;
  ArenaSlice class_slice_, hidden_slice_, loss_slice_, zero_slice_;
  float *classes_ = nullptr, *hidden_ = nullptr, *losses_ = nullptr;
  int32_t* zeros_ = nullptr;
};

}  // namespace hadal
