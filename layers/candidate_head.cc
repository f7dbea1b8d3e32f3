#include "layers/candidate_head.h"

#include <algorithm>

#include "kernels/cross_entropy.h"
#include "kernels/linear.h"
#include "kernels/top_candidates.h"

namespace hadal {
namespace {

constexpr int64_t kWordBytes = 4;  // size of a token and of a float
static_assert(sizeof(int32_t) == kWordBytes && sizeof(float) == kWordBytes);

// Of the own logits.
int64_t OwnStride(int64_t vocabulary) { return Workspace::LogitStride(DeviceKind::kCuda, vocabulary); }

}  // namespace

CandidateHead::Answer::Answer(void* words, int64_t rows, int32_t candidates) {
  tokens = {static_cast<int32_t*>(words), rows, candidates};
  values = {static_cast<float*>(words) + rows * candidates, rows, candidates};
  end = {values.data + rows * candidates, rows};
  nll = {end.data + rows, rows};
}

CandidateHead::CandidateHead(const ModelPlan& plan, int64_t rows, int32_t candidates, bool copies_logits,
                             ArenaLayout& layout)
    : table_(plan.sublayers[plan.output_head()].table),
      rows_(rows),
      candidates_(std::min(candidates, plan.options.target_vocabulary)),
      vocabulary_(plan.options.target_vocabulary),
      end_token_(plan.options.end_token),
      own_logits_(plan.compute_storage != Storage::kFloat32 || plan.options.adaptive()) {
  HADAL_CHECK_LE(rows, Workspace::DecodeRows(plan));
  const int64_t bytes = AnswerWords(rows, candidates_) * kWordBytes;
  if (own_logits_) logits_ = layout.Reserve<float>("decode workspace", rows * OwnStride(vocabulary_));
  if (plan.options.adaptive()) adaptive_.emplace(plan, rows, layout);
  answer_ = layout.ReserveBytes("decode workspace", bytes);
  best_ = layout.Reserve<int32_t>("decode workspace", rows);
  host_answer_ = layout.ReserveHostBytes("decode workspace", bytes);
  if (!copies_logits) return;
  host_logits_ = layout.ReserveHostBytes("decode workspace", rows * OwnStride(vocabulary_) * kWordBytes);
}

void CandidateHead::Bind(const Arena& arena) {
  if (adaptive_) adaptive_->Bind(arena);
  hadal::Bind(arena, logits_, host_logits_, answer_, host_answer_, best_);
}

Matrix CandidateHead::Logits(const Workspace& workspace, int64_t rows) const {
  if (own_logits_) return {logits_, rows, vocabulary_, OwnStride(vocabulary_)};
  return workspace.logits(rows).floats();
}

void CandidateHead::Forward(const Stream& stream, const ParameterStore& parameters, const Workspace& workspace,
                            ConstAnyMatrix x) const {
  const int64_t rows = x.rows;
  HADAL_CHECK_LE(rows, rows_);
  const Answer answer(answer_, rows, candidates_);
  const VectorOf<int32_t> best(best_, rows);
  const Matrix logits = Logits(workspace, rows);
  if (adaptive_) {
    adaptive_->Compute(stream, parameters, x.floats(), logits);
  } else {
    LinearForward(stream, {.x = x, .weight = parameters.ProductWeight(table_), .y = logits});
  }
  TopCandidates(stream, {.logits = logits,
                         .also = end_token_,
                         .tokens = answer.tokens,
                         .values = answer.values,
                         .also_values = answer.end,
                         .best = best});
  const bool on_device = stream.device() != nullptr;
  CrossEntropy(stream, {.logits = logits,
                        .targets = on_device ? ConstTokens() : ConstTokens(best),
                        .device_targets = on_device ? best_.data() : nullptr,
                        .loss = workspace.row_loss(rows),
                        .nll = answer.nll});
}

CandidateTable CandidateHead::Table(const Stream& stream, const Workspace& workspace, int64_t rows, bool logits) const {
  stream.ToHost(host_answer_, answer_, AnswerWords(rows, candidates_) * kWordBytes);
  const Answer answer(host_answer_, rows, candidates_);
  for (int64_t i = 0; i < rows; ++i) {
    const float best = answer.values.row(i)[0];
    const auto log_probability = [&](float z) { return (z - best) - answer.nll[i]; };
    for (int32_t k = 0; k < candidates_; ++k) answer.values.row(i)[k] = log_probability(answer.values.row(i)[k]);
    answer.end[i] = log_probability(answer.end[i]);
  }
  CandidateTable table{answer.tokens, answer.values, answer.end};
  if (!logits) return table;
  table.logits = Logits(workspace, rows);
  if (stream.device() == nullptr) return table;
  HADAL_CHECK(host_logits_ != nullptr);
  stream.ToHost(host_logits_, table.logits.data, rows * table.logits.stride * kWordBytes);
  table.logits.data = host_logits_;
  return table;
}

}  // namespace hadal
