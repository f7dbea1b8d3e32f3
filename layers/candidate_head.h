// The output head of decoding: the K most likely next tokens of each row (hypothesis), with their log-probabilities.
//
//   log p(v) = (z_v − z_best) − nll(best),  z = x·Eᵀ,  nll(best) = logsumexp(z) − z_best
// E: the output projection [V, d]; V: the vocabulary. With an adaptive softmax z is log p itself (adaptive_head.h).
// Shapes: x [B, d]; K candidates per row.
// Storage: x and E as ModelPlan::compute_storage, logits in fp32.
// Numerics: fp32. Probabilities are normalised over the whole vocabulary before the K best are taken, as in fairseq:
// tokens that the search excludes keep their share. A row's result does not depend on the other rows, but on a device
// its bits may depend on B. If a row has a NaN among its logits, all its candidates have log-probability NaN.
// REQUIRES: 1 ≤ B ≤ `rows` of the constructor, which is at most Workspace::DecodeRows(plan).
// Forward only launches kernels, the same ones for the same number of rows, so a device may capture it as a graph.
// Table waits for the result: K candidates per row, and on request the logits of all tokens (from a device a copy of
// B·V floats). Allocates nothing.
// Thread safety: Forward and Table write to the head's buffers, so one thread at a time may call them.
#pragma once

#include <cstdint>
#include <optional>

#include "layers/adaptive_head.h"
#include "layers/chunk_part.h"
#include "runtime/arena.h"

namespace hadal {

// The candidates of B rows, on the host. Views into the head's buffers, valid until the next Forward or Table.
struct CandidateTable {
  MatrixOf<const int32_t> tokens;  // [B, K] most likely first; then -1 if fewer than K logits are numbers
  ConstMatrix log_probabilities;   // [B, K]
  ConstVector end;                 // [B] log-probability of </s>
  ConstMatrix logits = {};         // [B, V] if requested
};

class CandidateHead {
 public:
  // Reserves buffers for `rows` rows. K = `candidates`, or V if that is smaller.
  // `copies_logits`: whether Table may return all logits on a device. (On a CPU it always may.)
  CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, bool copies_logits, ArenaLayout& layout);
  void Bind(const Arena& arena);

  // Computes the candidates of x [B, d]; Table returns them.
  void Forward(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
               ConstAnyMatrix x) const;
  // Returns the result of the last Forward. Blocking. `logits`: also returns all logits. REQUIRES: `workspace` and
  // `rows` are those of Forward; on a device `logits` needs copies_logits.
  CandidateTable Table(const Stream& stream, const Workspace& workspace, int64_t rows, bool logits) const;

 private:
  // The result for B rows of K candidates, as one range of words, so that a single copy transfers it to the host.
  struct Answer {
    MatrixOf<int32_t> tokens;
    Matrix values;    // logits; converted to log-probabilities on the host
    Vector end, nll;  // the logit of </s>; nll of the best candidate
    Answer(void* words, int64_t rows, int32_t candidates);
  };
  Matrix Logits(const Workspace& workspace, int64_t rows) const;
  static int64_t AnswerWords(int64_t rows, int32_t candidates) { return rows * (2 * candidates + 2); }

  int32_t table_;
  int64_t rows_;
  int32_t candidates_;
  int64_t vocabulary_;
  int32_t end_token_;
  std::optional<AdaptiveLogProbabilities> adaptive_;
  bool own_logits_;  // separate logits, if the workspace's are not fp32 or not of the whole vocabulary
  ArenaBuffer<float> logits_, host_logits_;
  ArenaBuffer<std::byte> answer_, host_answer_;
  ArenaBuffer<int32_t> best_;  // [rows] each row's best token, in kernel memory (runtime/stream.h)
};

}  // namespace hadal
