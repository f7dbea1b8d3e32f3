// What a rank reads from a checkpoint: all of its state, or weights alone, also of a smaller model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/checkpoint/checkpoint_reader.h"
#include "pipeline/checkpoint/deepening.h"
#include "pipeline/checkpoint/vocabulary_growth.h"
#include "pipeline/stage/stage_state.h"

namespace hadal {

// What to load from a checkpoint: kAll, to resume the run; for a new run only the weights (moments start at zero), of
// the same model, which may have more tokens (kWeights; vocabulary_growth.h), or of one with fewer layers
// (kWeightsOfShallower, by DeepeningRule::kSplit; kWeightsOfShallowerAndZeros, by kZero; deepening.h).
enum class LoadedState { kAll, kWeights, kWeightsOfShallower, kWeightsOfShallowerAndZeros };
// The rule by which layers are added; nullopt: none are.
std::optional<DeepeningRule> DeepeningOf(LoadedState loaded);

// Views of these slices: weights, empty where another replica keeps them, and for kAll moments.
std::vector<SliceState> StatesOf(std::span<const StateSlice> slices, LoadedState kinds);

// The tokens that the model has and the checkpoint lacks.
struct AddedTokens {
  const std::vector<Attachment>& vocabularies;  // the model's
  NewRows rows = NewRows::kDraw;
  uint64_t seed = 1;  // of new rows
};

// Reads this rank's slices of `state`.  Errors: FailedPrecondition, with what differs, if the checkpoint's parameters
// are not those that `loaded` requires, or its moments are of another optimizer than the run's; those of
// CheckpointReader::ReadSlices.
absl::Status LoadState(CheckpointReader& checkpoint, LoadedState loaded, const AddedTokens& added,
                       const StageState& state);

}  // namespace hadal
