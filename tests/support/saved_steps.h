// The steps of a run's committed checkpoints.
#pragma once

#include "pipeline/checkpoint/checkpoint_directory.h"

namespace hadal {

// In ascending order.
inline std::vector<int64_t> SavedSteps(const std::string& run_directory) {
  const std::vector<CheckpointEntry> entries = ListCheckpoints(run_directory).value();
  std::vector<int64_t> steps;
  for (const CheckpointEntry& entry : entries) steps.push_back(entry.step);
  return steps;
}

}  // namespace hadal
