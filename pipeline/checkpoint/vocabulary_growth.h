// Starts a model from a checkpoint of another vocabulary that has fewer tokens, or the same in another order. Each row
// of a vocabulary's tables (its embeddings, an untied output projection, the output bias of an encoder alone) belongs
// to a token of the model, and starts as follows:
//
//   a token of the checkpoint   its row there, whatever its id is in the model
//   another token               a new row: drawn as that of a new model (layers/initialization.h: a function of the
//                               run's seed, the parameter and the element alone, so the same for every layout), or the
//                               mean of the checkpoint's rows but those of the special tokens, summed in double in
//                               ascending order
//   a reserved language tag     that the model's vocabulary has given to a language (runtime/data/language_tags.h)
//                               keeps its row
// Not for an adaptive softmax, whose bands are ranges of ids.
// Memory: one of the checkpoint's tables at a time, on ranks that hold a part of it.
// Thread safety: pure functions, except that a reader is used by one thread. Blocking: reads files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "layers/model_plan.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_manifest.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "runtime/data/vocabulary.h"
#include "runtime/device.h"

namespace hadal {

enum class NewRows { kDraw, kMean };

// Returns the file of one side's vocabulary, `stem` and an extension, or that of both sides; null if there is none.
const AttachedFile* VocabularyFile(const CheckpointManifest& manifest, const std::string& stem);

// Returns for each id of `before` the same token's id in `now`; empty if every id means the same token in both.
// Errors: InvalidArgument if `now` lacks tokens, with their number and the first of them.
absl::StatusOr<std::vector<int32_t>> IdsOfTokens(const Vocabulary& before, const Vocabulary& now);

// The rows of a checkpoint in a model of another vocabulary.
struct TokenRows {
  std::vector<int32_t> source, target;  // IdsOfTokens of each side

  bool empty() const { return source.empty() && target.empty(); }
  // Returns those of a table; empty if the parameter is no table of a vocabulary, or its rows stay.
  std::span<const int32_t> Of(const ModelPlan& plan, int32_t parameter) const;
};
// `vocabularies`: the model's. Empty if they or those of the checkpoint are missing.
// Errors: IdsOfTokens'; those of reading.
absl::StatusOr<TokenRows> FindTokenRows(CheckpointReader& checkpoint, std::span<const Attachment> vocabularies);

// Compares names and shapes as CompareParameters does. Tables whose rows move may differ in their number of rows: the
// checkpoint has one for each id of its own vocabulary. `rows` null: every table may have any number of rows.
absl::Status CompareBesideRows(const std::vector<CheckpointParameter>& checkpoint, const ModelPlan& model,
                               const TokenRows* rows = nullptr);

// Fills the weights of `slices` that belong to tables whose rows move. `seed`: of the run. `device`: of the weights;
// null: host memory. REQUIRES: CompareBesideRows with `rows`.
// Errors: FailedPrecondition for an adaptive softmax; those of reading.
absl::Status ReadRowsByToken(CheckpointReader& checkpoint, const ModelPlan& model, const TokenRows& rows,
                             NewRows new_rows, uint64_t seed, std::span<const SliceState> slices, Device* device);

}  // namespace hadal
