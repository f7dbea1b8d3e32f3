// Measures the time of each sublayer inside a chunk that runs unchanged. A chunk calls its progress hook after every
// sublayer and every part (pipeline/stage/chunk.h), in an order that follows from the plan alone.
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "layers/model_plan.h"
#include "pipeline/stage/chunk.h"
#include "tools/plan/step_costs.h"

namespace hadal {

class SublayerClock {
 public:
  // For a chunk that has the whole model of `plan`. `recompute_every`: ChunkSpec::recompute_every of that chunk.
  SublayerClock(const ModelPlan& plan, int32_t recompute_every);
  SublayerClock(const SublayerClock&) = delete;
  SublayerClock& operator=(const SublayerClock&) = delete;

  // The hook: SublayerContext::progress must point to it while the chunk runs.
  const std::function<void()>& progress() const { return read_; }

  // Call BeginForward before Chunk::Forward, BeginBackward before Chunk::Backward, and End after either. End adds the
  // measured times to seconds().
  void BeginForward() { Begin(forward_); }
  void BeginBackward() { Begin(backward_); }
  void End();

  // Sums since the last Reset.  [sublayers]
  const std::vector<SublayerSeconds>& seconds() const { return seconds_; }
  void Reset();

 private:
  struct Mark {
    int32_t sublayer = 0;
    double SublayerSeconds::*part = nullptr;
  };

  void Begin(const std::vector<Mark>& marks);
  void AddSegments(int32_t first, int32_t last, int32_t recompute_every, const ModelPlan& plan);
  void AddPart(int32_t sublayer);

  std::vector<Mark> forward_, backward_;  // in the order of the calls
  std::function<void()> read_;
  const std::vector<Mark>* marks_ = nullptr;
  std::vector<double> times_;
  std::vector<SublayerSeconds> seconds_;
};

}  // namespace hadal
