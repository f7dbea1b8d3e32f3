// The output head of decoding: for each row the most likely next tokens with their log-probabilities.
//
//   log p(v) = (z_v − z_best) − nll(best),  z = x·Eᵀ,  nll(best) = logsumexp(z) − z_best
// Shapes: x [B, d]; K candidates a row.
// Numerics: fp32; normalised over the whole vocabulary, then the K best taken: what a search forbids still has its share of the
// probability, as in fairseq. A row's result does not depend on its neighbours (REQUIRES: 16 ≤ B ≤ Workspace::kLogitRows).
// A row with a NaN among its logits has only candidates of log-probability NaN. Blocking; allocates nothing.
#pragma once

#include <cstdint>

#include "layers/sublayer_context.h"
#include "runtime/arena.h"

namespace hadal {

// Of B rows, on the host. Views into the head's buffers, valid until its next Forward.
struct CandidateTable {
  MatrixOf<const int32_t> tokens;  // [B, K] most likely first; -1 behind the last where a row has fewer
  ConstMatrix log_probabilities;   // [B, K]
  ConstVector end;                 // [B] log-probability of </s>
};

class CandidateHead {
 public:
  // Room for `rows` rows of `candidates` candidates, fewer where the vocabulary is smaller.
  CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, ArenaLayout& layout);
  void Bind(const Arena& arena);

  CandidateTable Forward(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
                         ConstMatrix x) const;

 private:
  int32_t table_;
  int64_t rows_;
  int32_t candidates_;
  ArenaSlice tokens_slice_, values_slice_, end_slice_;  // where kernels write
  ArenaSlice host_tokens_slice_, best_slice_, log_probabilities_slice_, host_end_slice_, nll_slice_;
  int32_t *tokens_ = nullptr, *host_tokens_ = nullptr, *best_ = nullptr;
  float *values_ = nullptr, *end_ = nullptr, *log_probabilities_ = nullptr, *host_end_ = nullptr, *nll_ = nullptr;
};

}  // namespace hadal
