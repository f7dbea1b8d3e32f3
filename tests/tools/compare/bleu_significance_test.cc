#include "tools/compare/bleu_significance.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace hadal {
namespace {

struct Systems {
  std::vector<std::string> references, good, bad;
};

// `worse` of 200 segments lose a word in the bad system, `better` in the good one.
Systems MakeSystems(int worse, int better) {
  Systems systems;
  for (int i = 0; i < 200; ++i) {
    const std::string whole = absl::StrCat("the ", i, " small cats of ", i * 7, " houses sat on their mats today");
    const std::string damaged = absl::StrCat("the ", i, " small dogs of ", i * 7, " houses sat on their mats today");
    systems.references.push_back(whole);
    systems.bad.push_back(i < worse ? damaged : whole);
    systems.good.push_back(i >= worse && i < worse + better ? damaged : whole);
  }
  return systems;
}

double PValue(const Systems& systems, const BootstrapOptions& options = {}) {
  return PairedBootstrapPValue(CountSegments(systems.good, systems.references),
                               CountSegments(systems.bad, systems.references), options);
}

TEST(PairedBootstrap, ADifferenceInManySegmentsIsSignificant) { EXPECT_LT(PValue(MakeSystems(60, 0)), 0.01); }

TEST(PairedBootstrap, ADifferenceInOneSegmentIsNot) { EXPECT_GT(PValue(MakeSystems(1, 0)), 0.2); }

TEST(PairedBootstrap, TwoSystemsThatErrEquallyOftenDoNotDiffer) { EXPECT_GT(PValue(MakeSystems(30, 30)), 0.2); }

TEST(PairedBootstrap, TheSameSystemTwiceHasOne) { EXPECT_EQ(PValue(MakeSystems(0, 0)), 1); }

TEST(PairedBootstrap, IsSymmetricAndReproducible) {
  const Systems systems = MakeSystems(12, 4);
  Systems swapped = systems;
  std::swap(swapped.good, swapped.bad);
  EXPECT_EQ(PValue(systems), PValue(systems));
  EXPECT_EQ(PValue(systems), PValue(swapped));
  EXPECT_NEAR(PValue(systems), PValue(systems, {.seed = 99}), 0.05);
}

// With few segments that either differ or not, Δ_i is a function of how often the one that differs is drawn: 0 with
// probability (1 − 1/n)^n, about e^-1. The p-value can be no smaller than the share of resamples that far from the
// mean.
TEST(PairedBootstrap, ResamplesAreDrawnWithReplacement) {
  const double p = PValue(MakeSystems(1, 0), {.resamples = 4000});
  EXPECT_GT(p, 0.3);
  EXPECT_LT(p, 0.75);
}

TEST(PairedBootstrap, NoSegmentHasOne) { EXPECT_EQ(PairedBootstrapPValue({}, {}), 1); }

}  // namespace
}  // namespace hadal
