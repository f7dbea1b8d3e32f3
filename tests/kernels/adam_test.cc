#include "kernels/adam.h"

#include "gtest/gtest.h"
#include "runtime/stream.h"
#include "tests/kernels/adam_conformance.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/strided_matrix.h"

namespace hadal::testing {
namespace {

struct Variation {
  int threads;
  int64_t offset;  // of each vector, in floats
};
constexpr Variation kVariations[] = {{1, 0}, {1, 1}, {1, 3}, {2, 0}, {3, 0}, {2, 13}};

AdamState Step(AdamArgs args, const AdamState& before, const std::vector<float>& gradient, int variation) {
  const auto [threads, offset] = kVariations[variation];
  const int64_t count = std::ssize(gradient);
  // Vectors are matrices of one row here: guards lie before and behind it.
  const auto guarded = [&, at = offset](const std::vector<float>& v) { return StridedMatrix(v, 1, count, at, 3); };
  StridedMatrix parameter = guarded(before.parameter), g = guarded(gradient);
  StridedMatrix first = guarded(before.first_moment), second = guarded(before.second_moment);
  args.parameter = {parameter.view().data, count};
  args.gradient = {g.view().data, count};
  args.first_moment = {first.view().data, count};
  args.second_moment = {second.view().data, count};
  AdamStep(Stream::Cpu(threads), args);
  EXPECT_TRUE(parameter.guards_intact() && first.guards_intact() && second.guards_intact());
  EXPECT_EQ(g.dense(), gradient);
  return {parameter.dense(), first.dense(), second.dense()};
}

std::vector<AdamBackend> Backends() {
  return BackendsOfInstructionSets(
      [](int64_t target) -> AdamBackend { return {.step = Only(target, Step), .variations = std::size(kVariations)}; });
}
INSTANTIATE_TEST_SUITE_P(Cpu, AdamConformance, ::testing::ValuesIn(Backends()), BackendName());

}  // namespace
}  // namespace hadal::testing
