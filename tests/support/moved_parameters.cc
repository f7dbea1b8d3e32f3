#include "tests/support/moved_parameters.h"

#include "runtime/random.h"

namespace hadal::testing {

void MoveParametersOffTheirStart(const ParameterStore& parameters, uint64_t seed) {
  constexpr double kStep = 0.1;
  for (const int32_t p : parameters.owned()) {
    const ParameterRecord& record = parameters.plan().parameters[p];
    if (!record.is_vector() && record.init_scale != 0) continue;
    const Vector values = parameters.WeightVector(p);
    for (int64_t i = 0; i < values.size; ++i) {
      values[i] += static_cast<float>(kStep * NormalAt(seed, RandomSite::kInitialization, static_cast<uint32_t>(p), i));
    }
  }
}

void MoveHiddenUnitsOffTheBend(const ParameterStore& parameters) {
  constexpr float kAway = 5;
  for (const int32_t p : parameters.owned()) {
    const ParameterRole role = parameters.plan().parameters[p].role;
    const Vector values = parameters.WeightVector(p);
    if (role == ParameterRole::kHiddenShift) values[0] -= kAway;  // it is taken off
    if (role != ParameterRole::kHiddenBias) continue;
    for (int64_t i = 0; i < values.size; ++i) values[i] += i % 2 == 0 ? kAway : -kAway;
  }
}

}  // namespace hadal::testing
