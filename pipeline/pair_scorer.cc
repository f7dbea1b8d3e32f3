#include "pipeline/pair_scorer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "layers/parameter_store.h"
#include "runtime/bytes.h"
#include "runtime/check.h"
#include "runtime/comm/collectives.h"
#include "runtime/data/packed_batch.h"
#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr int32_t kFewestTokens = 32;  // of a batch

}  // namespace

absl::Status PairScorer::Build(int32_t batch_tokens, const Stream& stream) {
  pair_rows_ = batch_tokens;
  BatchOptions batch{.micro_batches = 1, .source_tokens = batch_tokens, .target_tokens = batch_tokens};
  PipelineOptions options;
  if (stream.kind() != DeviceKind::kCpu) {
    const auto block = static_cast<int32_t>(Workspace::LogitRows(stream.kind(), checkpoint_.plan()));
    if (batch_tokens > block) batch.target_tokens = (batch_tokens + block - 1) / block * block;
    options.bucket_rows = batch.target_tokens;  // no smaller size than the capacity's
  }
  HADAL_ASSIGN_OR_RETURN(pipeline_, MakePipelineLayout(checkpoint_.plan(), batch, options, communicator_.size()));
  HADAL_ASSIGN_OR_RETURN(engine_, Engine::Create({.plan = checkpoint_.plan(),
                                                  .pipeline = pipeline_,
                                                  .stream = stream,
                                                  .purpose = Purpose::kInference,
                                                  .world = communicator_,
                                                  .timeout = timeout_}));
  return checkpoint_.ReadWeights(engine_->stage().parameters(), engine_->stage().stream());
}

absl::StatusOr<std::unique_ptr<PairScorer>> PairScorer::Create(ModelCheckpoint& checkpoint, int32_t batch_tokens,
                                                               const Stream& stream, Communicator& communicator,
                                                               absl::Duration timeout) {
  if (batch_tokens < kFewestTokens) {
    return InvalidArgumentError("batch tokens = ", batch_tokens, " is below ", kFewestTokens);
  }
  std::unique_ptr<PairScorer> scorer(new PairScorer(checkpoint, communicator, timeout));
  HADAL_RETURN_IF_ERROR(
      Collectives(communicator, timeout).AllOk(scorer->Build(batch_tokens, stream), "loading the checkpoint"));
  return scorer;
}

int64_t PairScorer::longest_tokens() const { return std::min(pipeline_.capacity.max_length, pair_rows_) - 1; }

absl::StatusOr<std::vector<float>> PairScorer::RowLosses(const std::vector<PackedBatch>& batches) {
  std::vector<float> row_nll;
  const StepScalars scalars{.update = std::max<int64_t>(checkpoint_.progress().growth_update(), 1), .training = false};
  HADAL_RETURN_IF_ERROR(engine_->Evaluate(batches, scalars, &row_nll).status());
  const int head = pipeline_.RankOfSublayer(checkpoint_.plan().output_head());
  std::string bytes(AsBytes(row_nll));
  HADAL_RETURN_IF_ERROR(Collectives(communicator_, timeout_).Broadcast(bytes, head, "log-probabilities"));
  row_nll.resize(bytes.size() / sizeof(float));
  std::string_view left = bytes;
  HADAL_CHECK(TakeValues(left, std::span(row_nll)));
  return row_nll;
}

absl::StatusOr<std::vector<PairScore>> PairScorer::Score(std::span<const SampleView> pairs) {
  HADAL_ASSIGN_OR_RETURN(std::vector<PackedBatch> batches, PackSentences(pairs, {pair_rows_, pair_rows_}));
  HADAL_ASSIGN_OR_RETURN(const std::vector<float> row_nll, RowLosses(batches));
  return Sum(batches, row_nll, std::vector<int64_t>(pairs.size(), 0));
}

absl::StatusOr<std::vector<PairScore>> PairScorer::ScoreBlocks(std::span<const TextBlock> blocks) {
  std::vector<PackedBatch> batches;
  std::vector<int64_t> unscored;
  const ModelOptions& model = checkpoint_.plan().options;
  for (const TextBlock& block : blocks) {
    HADAL_CHECK_LE(std::ssize(block.tokens), longest_tokens() + 2);
    const int64_t rows = std::ssize(block.tokens) - 1;
    if (batches.empty() || batches.back().target_rows() + rows > pair_rows_) {
      ClearBatch(batches.emplace_back());
      batches.back().micro_batch = static_cast<int32_t>(batches.size()) - 1;
    }
    const TextForm form{.start_token = model.start_token, .block = 1, .document_mask = model.document_mask};
    AppendSentence({.target = block.tokens, .has_source = false, .form = form}, std::ssize(unscored), batches.back());
    unscored.push_back(block.context);
  }
  HADAL_ASSIGN_OR_RETURN(const std::vector<float> row_nll, RowLosses(batches));
  return Sum(batches, row_nll, std::move(unscored));
}

std::vector<PairScore> PairScorer::Sum(std::span<const PackedBatch> batches, std::span<const float> row_nll,
                                       std::vector<int64_t> unscored) {
  std::vector<PairScore> scores(unscored.size());
  size_t row = 0;
  for (const PackedBatch& batch : batches) {
    for (int64_t n = 0; n < batch.sentences(); ++n) {
      for (int32_t r = batch.target_offsets[n]; r < batch.target_offsets[n + 1]; ++r, ++row) {
        if (unscored[batch.samples[n]]-- > 0) continue;  // a block may be several sentences
        scores[batch.samples[n]].log_probability -= row_nll[row];
        ++scores[batch.samples[n]].tokens;
      }
    }
  }
  return scores;
}

}  // namespace hadal
