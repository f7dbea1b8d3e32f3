// A model saved as a run leaves it behind, for tests of what reads a checkpoint: one step's, with random weights or
// trained ones.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pipeline/checkpoint/checkpoint.h"
#include "pipeline/engine/engine.h"
#include "runtime/data/vocabulary.h"

namespace hadal {

struct SavedModel {
  ModelOptions model;
  std::vector<Attachment> vocabularies;  // as training attaches them
  std::string config = {};               // as training resolved it, text format
  int ranks = 1;                         // that save it, each a stage
  // Changes the weights, which are random before, on every rank, and returns the steps that took; null: they stay,
  // after one step.
  std::function<absl::StatusOr<int64_t>(Engine&)> train;
};

// Blocking; on threads of its own.
absl::Status SaveModel(const SavedModel& saved, const std::string& run_directory);

// A vocabulary's file under a name that training gives it: "vocabulary" where both sides share one, "source.vocabulary"
// …
Attachment VocabularyFile(const std::string& name, const Vocabulary& vocabulary);

}  // namespace hadal
