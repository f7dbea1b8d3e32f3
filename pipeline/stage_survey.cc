#include "pipeline/stage_survey.h"

#include <algorithm>
#include <cstdint>

#include "runtime/status_macros.h"

namespace hadal {
namespace {

constexpr double StageTimes::*kTimes[] = {
    &StageTimes::forward_seconds,    &StageTimes::recompute_seconds,     &StageTimes::backward_seconds,
    &StageTimes::wait_seconds,       &StageTimes::communication_seconds, &StageTimes::optimizer_seconds,
    &StageTimes::checkpoint_seconds, &StageTimes::core_wait_seconds,     &StageTimes::launches};
static_assert(sizeof(kTimes) / sizeof(kTimes[0]) == sizeof(StageTimes) / sizeof(double));
constexpr int64_t StageMemory::*kMemory[] = {&StageMemory::arena_bytes, &StageMemory::held_bytes,
                                             &StageMemory::peak_resident_bytes, &StageMemory::graph_bytes};
static_assert(sizeof(kMemory) / sizeof(kMemory[0]) == sizeof(StageMemory) / sizeof(int64_t));

}  // namespace

absl::StatusOr<StageSurvey> SurveyStages(const GridShape& grid, const StageTimes& times, const StageMemory& memory,
                                         Collectives& collectives) {
  std::vector<double> mine;
  for (const auto field : kTimes) mine.push_back(times.*field);
  for (const auto field : kMemory) mine.push_back(static_cast<double>(memory.*field));
  HADAL_ASSIGN_OR_RETURN(const std::vector<std::vector<double>> all, collectives.AllGather(mine, "stage times"));
  StageSurvey survey;
  survey.times.resize(grid.stages);
  survey.memory.resize(grid.stages);
  for (int stage = 0; stage < grid.stages; ++stage) {
    for (int replica = 0; replica < grid.replicas; ++replica) {
      auto value = all[grid.RankOf(stage, replica)].begin();
      for (const auto field : kTimes) survey.times[stage].*field += *value++ / grid.replicas;
      for (const auto field : kMemory) {
        int64_t& most = survey.memory[stage].*field;
        most = std::max(most, static_cast<int64_t>(*value++));
      }
    }
  }
  return survey;
}

}  // namespace hadal
