#include "layers/candidate_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "kernels/top_candidates.h"
#include "runtime/data/packed_batch.h"

namespace hadal {

CandidateHead::CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, ArenaLayout& layout)
    : table_(plan.sublayers[plan.output_head()].table),
      rows_(rows),
      candidates_(std::min(candidates, plan.options.target_vocabulary)),
      tokens_slice_(layout.Reserve<int32_t>("decode workspace", rows * candidates_)),
      best_slice_(layout.Reserve<int32_t>("decode workspace", rows)),
      log_probabilities_slice_(layout.Reserve<float>("decode workspace", rows * candidates_)),
      end_slice_(layout.Reserve<float>("decode workspace", rows)) {
  HADAL_CHECK_LE(rows, Workspace::kLogitRows);
}

void CandidateHead::Bind(const Arena& arena) {
  tokens_ = arena.Get<int32_t>(tokens_slice_);
  best_ = arena.Get<int32_t>(best_slice_);
  log_probabilities_ = arena.Get<float>(log_probabilities_slice_);
  end_ = arena.Get<float>(end_slice_);
}

CandidateTable CandidateHead::Forward(const Stream& stream, const ParameterStore& parameters,
                                      const Workspace& workspace, ConstMatrix x) const {
  const int64_t rows = x.rows;
  HADAL_CHECK_LE(rows, rows_);
  const Matrix logits = workspace.logits(rows).floats();
  const Vector nll = workspace.row_nll(rows);
  const MatrixOf<int32_t> tokens(tokens_, rows, candidates_);
  const Matrix log_probabilities(log_probabilities_, rows, candidates_);
  LinearForward(stream, {.x = x, .weight = parameters.Weight(table_), .y = logits});
  TopCandidates(stream, {.logits = logits, .tokens = tokens});
  for (int64_t i = 0; i < rows; ++i) best_[i] = std::max(tokens.row(i)[0], 0);
  CrossEntropy(stream, {.logits = logits, .targets = {best_, rows}, .loss = workspace.row_loss(rows), .nll = nll});
  for (int64_t i = 0; i < rows; ++i) {
    const float* z = logits.row(i);
    const auto log_probability = [&](int32_t token) { return (z[token] - z[best_[i]]) - nll[i]; };
    for (int32_t k = 0; k < candidates_; ++k) {
      log_probabilities.row(i)[k] = log_probability(std::max(tokens.row(i)[k], 0));
    }
    end_[i] = log_probability(kEosToken);
  }
  return {tokens, log_probabilities, {end_, rows}};
}

}  // namespace hadal
