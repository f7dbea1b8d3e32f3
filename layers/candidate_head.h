// The output head of decoding: for each row the most likely next tokens with their log-probabilities.
//
//   log p(v) = (z_v − z_best) − nll(best),  z = x·Eᵀ,  nll(best) = logsumexp(z) − z_best
// Shapes: x [B, d]; K candidates a row.
// Storage: x and E as products read them, logits in fp32.
// Numerics: fp32. Probabilities are normalised over the whole vocabulary before the K best are taken, as in fairseq:
// tokens that a search forbids keep their share. A row's result does not depend on the other rows; on a device only as
// long as B is always the same. A row with a NaN among its logits has only candidates of log-probability NaN.
// REQUIRES: 16 ≤ B ≤ Workspace::kLogitRows.
// Forward only launches kernels, always the same ones for the same number of rows, so a device may record it. Table
// waits for the result. Allocates nothing.
// Thread safety: one step at a time.
#pragma once

#include <cstdint>

#include "layers/sublayer_context.h"
#include "runtime/arena.h"

namespace hadal {

// For B rows, on the host. Views into the head's buffers, valid until the next call of Table.
struct CandidateTable {
  MatrixOf<const int32_t> tokens;  // [B, K] most likely first; -1 after the last where a row has fewer
  ConstMatrix log_probabilities;   // [B, K]
  ConstVector end;                 // [B] log-probability of </s>
};

class CandidateHead {
 public:
  // Reserves room for `rows` rows with `candidates` candidates each; fewer where the vocabulary is smaller.
  CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Finds the candidates of x [B, d].
  void Forward(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
               ConstAnyMatrix x) const;
  // What the last Forward found. `rows`: its B. Blocking.
  CandidateTable Table(const Stream& stream, int64_t rows) const;

 private:
  // The result for B rows of K candidates, as one range of words, so that one copy brings it to the host.
  struct Answer {
    MatrixOf<int32_t> tokens;
    Matrix values;    // logits; on the host they are turned into log-probabilities
    Vector end, nll;  // the logit of </s>; nll of the best candidate
    Answer(void* words, int64_t rows, int32_t candidates);
  };
  static int64_t AnswerWords(int64_t rows, int32_t candidates) { return rows * (2 * candidates + 2); }

  int32_t table_;
  int64_t rows_;
  int32_t candidates_;
  int64_t vocabulary_;
  bool own_logits_;  // own buffer for fp32 logits, where the workspace's logits are not fp32
  ArenaSlice logits_slice_, answer_slice_, best_slice_, host_answer_slice_;
  float* logits_ = nullptr;
  void *answer_ = nullptr, *host_answer_ = nullptr;
  int32_t* best_ = nullptr;  // [rows], where kernels write
};

}  // namespace hadal
