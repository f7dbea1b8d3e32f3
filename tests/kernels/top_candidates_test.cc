#include "kernels/top_candidates.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/support/each_instruction_set.h"
#include "tests/support/top_candidates_reference.h"

namespace hadal::testing {
namespace {

TEST(TopCandidatesTest, EqualsSortingOnEveryInstructionSet) {
  ForEachInstructionSet([] {
    for (const int threads : {1, 3}) {
      ExpectTopCandidates([threads](const std::vector<float>& logits, int64_t rows, int64_t count, int32_t also) {
        TopCandidatesResults found = {std::vector<int32_t>(rows * count, 12345), std::vector<int32_t>(rows, 12345),
                                      std::vector<float>(rows * count), std::vector<float>(rows)};
        TopCandidates(Stream::Cpu(threads), {.logits = {logits.data(), rows, std::ssize(logits) / rows},
                                             .also = also,
                                             .tokens = {found.tokens.data(), rows, count},
                                             .values = {found.values.data(), rows, count},
                                             .also_values = {found.also.data(), rows},
                                             .best = {found.best.data(), rows}});
        return found;
      });
    }
  });
}

}  // namespace
}  // namespace hadal::testing
