#include "tests/support/small_checkpoint.h"

#include "runtime/check.h"
#include "runtime/random.h"
#include "runtime/status_macros.h"

namespace hadal {

std::vector<CheckpointParameter> SmallParameters() {
  return {{.name = "encoder.embed_tokens.weight", .rows = 4097, .columns = 256, .is_vector = false},  // 2 slices
          {.name = "encoder.layers.0.fc1.weight", .rows = 6, .columns = 4, .is_vector = false},
          {.name = "encoder.layers.0.fc1.bias", .rows = 6, .columns = 1, .is_vector = true},
          {.name = "decoder.layers.0.fc1.weight", .rows = 6, .columns = 1, .is_vector = false},
          {.name = "decoder.layer_norm.weight", .rows = 1, .columns = 1, .is_vector = true}};
}

SmallState::SmallState(std::vector<CheckpointParameter> parameters, uint64_t seed)
    : parameters_(std::move(parameters)), values_(parameters_.size()) {
  for (size_t p = 0; p < parameters_.size(); ++p) {
    for (size_t kind = 0; kind < kStateKinds.size(); ++kind) {
      std::vector<float>& values = values_[p][kind];
      values.resize(static_cast<size_t>(parameters_[p].elements()));
      for (size_t i = 0; i < values.size(); i += 4) {
        const auto random = Philox4x32(seed, {static_cast<uint32_t>(i), static_cast<uint32_t>(p * 3 + kind), 0, 0});
        for (size_t j = 0; j < 4 && i + j < values.size(); ++j) {
          values[i + j] = static_cast<float>(static_cast<int32_t>(random[j])) * 0x1p-31f;
        }
      }
    }
  }
}

std::vector<SliceState> SmallState::Slices() { return SlicesOfRank(0, 1); }

std::vector<SliceState> SmallState::SlicesOfRank(int rank, int ranks) {
  std::vector<SliceState> result;
  int64_t number = 0;
  for (int32_t p = 0; p < static_cast<int32_t>(parameters_.size()); ++p) {
    for (int64_t slice = 0; slice < parameters_[p].slices(); ++slice) {
      if (number++ % ranks != rank) continue;
      const auto view = [&](StateKind kind) {
        return Vector(values(p, kind).data() + slice * kSliceElements, parameters_[p].slice_elements(slice));
      };
      result.push_back({.parameter = p,
                        .slice = slice,
                        .weight = view(StateKind::kWeight),
                        .first_moment = view(StateKind::kFirstMoment),
                        .second_moment = view(StateKind::kSecondMoment)});
    }
  }
  return result;
}

void SmallState::Clear() {
  for (auto& kinds : values_) {
    for (std::vector<float>& values : kinds) std::fill(values.begin(), values.end(), -77.0f);
  }
}

CheckpointCommitter SmallCommitter(const std::string& run_directory, const RetentionPolicy& retention,
                                   const std::vector<CheckpointParameter>& parameters) {
  const std::string attempt = NewCheckpointAttempt();
  CheckpointCommitter committer({.run_directory = run_directory,
                                 .attempt = attempt,
                                 .plan_hash = 0xfeedfacecafebeef,
                                 .parameters = parameters,
                                 .retention = retention});
  HADAL_CHECK(committer.Claim().ok());
  HADAL_CHECK(RemoveLeftovers(run_directory, attempt).ok());
  return committer;
}

absl::StatusOr<WrittenFile> WriteRankFile(const CheckpointCommitter& committer, int64_t step, int rank,
                                          std::span<const SliceState> slices) {
  HADAL_ASSIGN_OR_RETURN(CheckpointFileWriter writer,
                         CheckpointFileWriter::Create(committer.FileOptions(step, rank), slices));
  for (const SliceState& slice : slices) HADAL_RETURN_IF_ERROR(writer.Append(slice));
  return writer.Finish();
}

absl::StatusOr<CommitResult> Save(CheckpointCommitter& committer, SmallState& state, const SaveOptions& options) {
  CommitRequest request = {.progress = {.step = options.step,
                                        .update = options.step - 1,
                                        .seed = 0xffffffffffffffff,
                                        .epochs_done = 1.25,
                                        .validation_nll = options.validation_nll,
                                        .validation_metric = options.validation_metric,
                                        .best = options.best},
                           .config_text = options.config_text,
                           .model_settings = R"({"d_model": 256})",
                           .files = {},
                           .attachments = {{"vocabulary.model", options.vocabulary}},
                           .is_best = options.is_best};
  for (int rank = 0; rank < options.ranks; ++rank) {
    HADAL_ASSIGN_OR_RETURN(const WrittenFile file,
                           WriteRankFile(committer, options.step, rank, state.SlicesOfRank(rank, options.ranks)));
    // Through text, as ranks send it.
    HADAL_ASSIGN_OR_RETURN(request.files.emplace_back(), WrittenFile::Parse(file.ToString()));
  }
  return committer.Commit(request);
}

}  // namespace hadal
