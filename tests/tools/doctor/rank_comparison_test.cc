#include "tools/doctor/doctor_findings.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Ranks that reach these GFLOP/s, two on a host.
struct Ranks {
  explicit Ranks(const std::vector<double>& gflops) {
    for (int rank = 0; rank < std::ssize(gflops); ++rank) {
      facts.push_back({{.rank = rank, .host = rank / 2 == 0 ? "n1" : "n2"}, {}});
      measured.push_back({.gflops = gflops[rank]});
    }
  }
  std::vector<Finding> Slow(const RankComparison::OfKind& of_kind = nullptr) const {
    RankComparison comparison(facts, measured);
    comparison.Slow(
        "products", "TFLOP/s", 1e-3, [](const RankMeasurements& m) { return m.gflops; }, of_kind, "Look at it.");
    return comparison.Take();
  }

  std::vector<DoctorFacts> facts;
  std::vector<RankMeasurements> measured;
};

TEST(RankComparison, SlowIsBelowHalfOfTheMedianAndSuspectBelowThreeQuarters) {
  EXPECT_THAT(Ranks({100, 100, 75}).Slow(), IsEmpty());
  const std::vector<Finding> suspect = Ranks({100, 74, 100, 50, 100}).Slow();
  ASSERT_EQ(suspect.size(), 2u);
  EXPECT_THAT(suspect[0].ranks, ElementsAre(1));
  EXPECT_EQ(suspect[0].severity, Severity::kWarning);
  EXPECT_EQ(suspect[0].text, "products: 0.07 TFLOP/s, the median is 0.10 TFLOP/s. Look at it.");
  EXPECT_THAT(suspect[1].ranks, ElementsAre(3));
  EXPECT_EQ(suspect[1].severity, Severity::kWarning);
  const std::vector<Finding> bad = Ranks({100, 100, 49}).Slow();
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_THAT(bad[0].ranks, ElementsAre(2));
  EXPECT_EQ(bad[0].severity, Severity::kBad);
}

TEST(RankComparison, TheMedianOfTwoIsTheirMean) {
  EXPECT_THAT(Ranks({100, 61}).Slow(), IsEmpty());
  EXPECT_EQ(Ranks({100, 40}).Slow().at(0).severity, Severity::kWarning) << "40 of 70";
  EXPECT_EQ(Ranks({100, 30}).Slow().at(0).severity, Severity::kBad) << "30 of 65";
  EXPECT_TRUE(Ranks({100, 30}).Slow().at(0).speed);
}

TEST(RankComparison, TwoRanksAreComparedAndOneIsNot) {
  const std::vector<Finding> slower = Ranks({10, 100}).Slow();
  ASSERT_EQ(slower.size(), 1u);
  EXPECT_THAT(slower[0].ranks, ElementsAre(0));
  EXPECT_THAT(Ranks({10}).Slow(), IsEmpty());
  EXPECT_THAT(Ranks({10, 100}).Slow([](int rank) { return rank == 0; }), IsEmpty());
}

TEST(RankComparison, OnlyRanksOfTheKindAreComparedAndFound) {
  EXPECT_THAT(Ranks({100, 10, 100, 10}).Slow([](int rank) { return rank % 2 == 0; }), IsEmpty());
  const std::vector<Finding> found = Ranks({10, 100, 10, 40}).Slow([](int rank) { return rank % 2 == 1; });
  ASSERT_EQ(found.size(), 1u);
  EXPECT_THAT(found[0].ranks, ElementsAre(3));
}

TEST(RankComparison, WhoDiffersFromMostIsFound) {
  const Ranks ranks({1, 2, 2, 2, 3, 1});
  RankComparison comparison(ranks.facts, ranks.measured);
  const auto majority = [&](const RankComparison::OfKind& of_kind) {
    comparison.Majority(
        Severity::kBad, "binary",
        [&](const DoctorFacts& facts) { return std::to_string(static_cast<int>(ranks.measured[facts.rank].gflops)); },
        of_kind, "Copy it.");
    return comparison.Take();
  };
  const std::vector<Finding> all = majority(nullptr);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0].ranks, ElementsAre(0, 5));
  EXPECT_EQ(all[0].text, "its binary is 1; most ranks have 2. Copy it.");
  EXPECT_EQ(all[0].severity, Severity::kBad);
  EXPECT_THAT(all[1].ranks, ElementsAre(4));
  comparison.Majority(
      Severity::kNote, "host", [](const DoctorFacts& facts) { return facts.host; }, nullptr, "");
  EXPECT_EQ(comparison.Take().at(0).severity, Severity::kNote) << "as bad as it is said to be";
  EXPECT_THAT(majority([](int rank) { return rank >= 1 && rank <= 3; }), IsEmpty());
  EXPECT_THAT(majority([](int) { return false; }), IsEmpty());
}

TEST(RankComparison, BadFindingsComeFirstAndAreTakenOnce) {
  const Ranks ranks({1});
  RankComparison comparison(ranks.facts, ranks.measured);
  comparison.Add(Severity::kNote, {0}, "a note");
  comparison.Add(Severity::kBad, {0}, "bad");
  comparison.Add(Severity::kWarning, {0}, "a warning");
  comparison.Add(Severity::kBad, {0}, "bad too");
  std::vector<std::string> texts;
  for (const Finding& finding : comparison.Take()) texts.push_back(finding.text);
  EXPECT_THAT(texts, ElementsAre("bad", "bad too", "a warning", "a note"));
  EXPECT_THAT(comparison.Take(), IsEmpty());
}

}  // namespace
}  // namespace hadal
