#include "layers/candidate_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "kernels/top_candidates.h"
#include "runtime/data/packed_batch.h"

namespace hadal {
namespace {

constexpr int64_t kWordBytes = 4;  // of a token, of a float

}  // namespace

CandidateHead::CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, ArenaLayout& layout)
    : table_(plan.sublayers[plan.output_head()].table),
      rows_(rows),
      candidates_(std::min(candidates, plan.options.target_vocabulary)),
      tokens_slice_(layout.Reserve<int32_t>("decode workspace", rows * candidates_)),
      values_slice_(layout.Reserve<float>("decode workspace", rows * candidates_)),
      end_slice_(layout.Reserve<float>("decode workspace", rows)) {
  HADAL_CHECK_LE(rows, Workspace::kLogitRows);
  const auto reserve = [&](int64_t words) { return layout.ReserveHostBytes("decode workspace", words * kWordBytes); };
  host_tokens_slice_ = reserve(rows * candidates_);
  log_probabilities_slice_ = reserve(rows * candidates_);
  best_slice_ = reserve(rows);
  host_end_slice_ = reserve(rows);
  nll_slice_ = reserve(rows);
}

void CandidateHead::Bind(const Arena& arena) {
  tokens_ = arena.Get<int32_t>(tokens_slice_);
  values_ = arena.Get<float>(values_slice_);
  end_ = arena.Get<float>(end_slice_);
  host_tokens_ = arena.Get<int32_t>(host_tokens_slice_);
  best_ = arena.Get<int32_t>(best_slice_);
  log_probabilities_ = arena.Get<float>(log_probabilities_slice_);
  host_end_ = arena.Get<float>(host_end_slice_);
  nll_ = arena.Get<float>(nll_slice_);
}

CandidateTable CandidateHead::Forward(const Stream& stream, const ParameterStore& parameters,
                                      const Workspace& workspace, ConstMatrix x) const {
  const int64_t rows = x.rows;
  HADAL_CHECK_LE(rows, rows_);
  const Matrix logits = workspace.logits(rows).floats();
  const Vector nll = workspace.row_nll(rows);
  LinearForward(stream, {.x = x, .weight = parameters.Weight(table_), .y = logits});
  TopCandidates(stream, {.logits = logits,
                         .also = kEosToken,
                         .tokens = {tokens_, rows, candidates_},
                         .values = {values_, rows, candidates_},
                         .also_values = {end_, rows}});
  const MatrixOf<int32_t> tokens(host_tokens_, rows, candidates_);
  const Matrix log_probabilities(log_probabilities_, rows, candidates_);
  stream.ToHost(host_tokens_, tokens_, rows * candidates_ * kWordBytes);
  stream.ToHost(log_probabilities_, values_, rows * candidates_ * kWordBytes);
  stream.ToHost(host_end_, end_, rows * kWordBytes);
  for (int64_t i = 0; i < rows; ++i) best_[i] = std::max(tokens.row(i)[0], 0);
  CrossEntropy(stream, {.logits = logits, .targets = {best_, rows}, .loss = workspace.row_loss(rows), .nll = nll});
  stream.ToHost(nll_, nll.data, rows * kWordBytes);
  for (int64_t i = 0; i < rows; ++i) {
    const float best = log_probabilities.row(i)[0];
    const auto log_probability = [&](float z) { return (z - best) - nll_[i]; };
    for (int32_t k = 0; k < candidates_; ++k) {
      log_probabilities.row(i)[k] = log_probability(log_probabilities.row(i)[k]);
    }
    host_end_[i] = log_probability(host_end_[i]);
  }
  return {tokens, log_probabilities, {host_end_, rows}};
}

}  // namespace hadal
