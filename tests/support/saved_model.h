// Saves a model as a run does, for tests of code that reads checkpoints: after one step, with random or trained
// weights.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint_directory.h"
#include "pipeline/engine/engine.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct SavedModel {
  ModelOptions model;
  std::vector<Attachment> vocabularies;  // as training attaches them
  std::string config = {};               // as training resolved it, text format
  InputKind inputs = {};                 // of its training data
  int ranks = 1;                         // ranks that save it, one per stage
  // Changes the random initial weights on every rank, and returns the number of steps taken; null: random weights, one
  // step.
  std::function<absl::StatusOr<int64_t>(Engine&)> train;
};

// Blocking; starts its own threads.
absl::Status SaveModel(const SavedModel& saved, const std::string& run_directory);

// A vocabulary file with a name as training uses it: "vocabulary" if both sides share one, "source.vocabulary" …
Attachment VocabularyFile(const std::string& name, const Vocabulary& vocabulary);

}  // namespace hadal
