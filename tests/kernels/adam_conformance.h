// What Adam must do: one text for the CPU in each instruction set and for CUDA's kernel. A backend's test says how it
// runs a step, and adds what only it has.
#pragma once

#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/adam.h"
#include "tests/support/backend.h"

namespace hadal::testing {

struct AdamState {
  std::vector<float> parameter, first_moment, second_moment;  // [count]
};
AdamState MakeAdamState(int64_t count);
std::vector<float> MakeAdamGradient(int64_t count);

// Scalars of a step in the middle of a run; no vectors.
AdamArgs TypicalAdamArgs();

struct AdamBackend {
  using Step = AdamState(const AdamArgs& scalars, const AdamState& before, const std::vector<float>& gradient,
                         int variation);
  std::string name;
  // The state after a step, which has the same bits for every `variation` below `variations`: an alignment, a number of
  // threads, an order of theirs. Shows by itself that nothing beside the vectors was written.
  std::function<Step> step;
  int variations;
};

class AdamConformance : public ::testing::TestWithParam<AdamBackend> {
 protected:
  static AdamState Step(const AdamArgs& scalars, const AdamState& before, const std::vector<float>& gradient,
                        int variation = 0) {
    return GetParam().step(scalars, before, gradient, variation);
  }
  static void ExpectReference(const AdamArgs& scalars, int64_t count);
};

}  // namespace hadal::testing
