#include "tools/doctor/doctor.h"

#include <mutex>

#include "gmock/gmock.h"
#include "runtime/comm/in_process_communicator.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tests/support/healthy_cluster.h"
#include "tests/support/temporary_directory.h"
#include "tools/doctor/doctor_findings.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DoctorFindings, HealthyRanksHaveNone) { EXPECT_THAT(Cluster().Findings(), IsEmpty()); }

TEST(DoctorFindings, PlacesRanksOnTheirHosts) {
  const Cluster cluster;
  EXPECT_EQ(cluster.ranks[3].local_rank, 1);
  EXPECT_EQ(cluster.ranks[3].ranks_on_host, 2);
}

TEST(DoctorFindings, NamesTheRankAndTheHostThatDiffer) {
  Cluster cluster;
  cluster.ranks[2].binary_crc32c = 8;
  cluster.ranks[3].instruction_sets = HWY_AVX2;
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].ranks, ElementsAre(2));
  EXPECT_THAT(findings[0].text, HasSubstr("its binary is"));
  EXPECT_EQ(findings[0].severity, Severity::kBad);
  EXPECT_THAT(findings[1].ranks, ElementsAre(3));
  EXPECT_THAT(findings[1].text, HasSubstr("instruction set is AVX2"));
  EXPECT_EQ(findings[1].severity, Severity::kWarning);
}

// On a busy host any rank may be slow; a host of which all ranks are slow is a slow host.
TEST(DoctorFindings, NamesTheSlowRankAndJudgesItsHost) {
  Cluster cluster;
  cluster.measured[3].gflops = 30;
  EXPECT_EQ(cluster.Only().severity, Severity::kWarning);
  cluster = Cluster();
  for (int rank : {4, 5}) {
    cluster.ranks.push_back(cluster.ranks[rank - 2]);
    cluster.measured.push_back(cluster.measured[rank - 2]);
    cluster.ranks[rank].rank = rank;
    cluster.ranks[rank].host = "n3";
    cluster.measured[rank].gflops = 30;
  }
  cluster.measured[1].gflops = 55;
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_THAT(findings[0].ranks, ElementsAre(4));
  EXPECT_EQ(findings[0].severity, Severity::kBad);
  EXPECT_THAT(findings[1].ranks, ElementsAre(5));
  EXPECT_EQ(findings[1].severity, Severity::kBad);
  EXPECT_THAT(findings[2].ranks, ElementsAre(1));
  EXPECT_EQ(findings[2].severity, Severity::kWarning);
}

TEST(DoctorFindings, LinksAreComparedWithLinksOfTheirKind) {
  Cluster cluster;
  for (int rank = 0; rank < 4; ++rank) cluster.ranks.push_back(cluster.ranks[rank]);
  for (int rank = 0; rank < 4; ++rank) cluster.measured.push_back(cluster.measured[rank]);
  for (int rank = 0; rank < 8; ++rank) cluster.ranks[rank].rank = rank;
  for (int rank = 4; rank < 8; ++rank) cluster.ranks[rank].host = rank < 6 ? "n3" : "n4";
  EXPECT_THAT(cluster.Findings(), IsEmpty());  // 1 GB/s between hosts is no fault beside 5 GB/s within
  cluster.measured[5].next_bytes_per_second = 2e8;
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].ranks, ElementsAre(5));
  EXPECT_THAT(findings[0].text, AllOf(HasSubstr("between hosts"), HasSubstr("0.20 GB/s"), HasSubstr("1.00 GB/s")));
}

TEST(DoctorFindings, CrampedRanks) {
  Cluster cluster;
  cluster.ranks[0].cpus = {0};
  cluster.ranks[1].cpus = {0};
  cluster.ranks[2].open_files_limit = 256;
  cluster.ranks[3].memory_limit_bytes = int64_t{1} << 30;
  std::vector<std::string> texts;
  for (const Finding& finding : cluster.Findings()) {
    EXPECT_EQ(finding.severity, Severity::kWarning);
    texts.push_back(finding.text);
  }
  EXPECT_THAT(texts, ElementsAre(HasSubstr("2 threads on 1 CPUs (0)"), HasSubstr("2 threads on 1 CPUs"),
                                 HasSubstr("4 threads in total share 1 CPUs"), HasSubstr("only 256 files"),
                                 HasSubstr("1.0 GiB")));
}

// MPI's shared memory is for ranks that share a host.
TEST(DoctorFindings, LittleSharedMemoryIsTroubleForNeighbours) {
  Cluster cluster;
  cluster.ranks[1].shared_memory_bytes = (int64_t{64} << 20) - 1;
  cluster.ranks[2].shared_memory_bytes = 0;
  cluster.ranks[2].ranks_on_host = 1;
  cluster.ranks[3].shared_memory_bytes = -1;  // not known
  cluster.ranks[3].open_files_limit = -1;
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_THAT(findings[0].ranks, ElementsAre(1));
  EXPECT_THAT(findings[0].text, HasSubstr("/dev/shm has 63 MiB free"));
}

TEST(DoctorFindings, LocksThatDoNothingAreAWarning) {
  Cluster cluster;
  cluster.measured[0].lock_excludes = false;
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].severity, Severity::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("file locks do not exclude other ranks"));
}

TEST(DoctorFindings, FilesThatAreNotShared) {
  Cluster cluster;
  cluster.measured[2].sees_others = false;
  cluster.measured[3].file_trouble = "cannot create x: no space";
  const auto findings = cluster.Findings();
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_THAT(findings[0].text, HasSubstr("not on a shared file system"));
  EXPECT_THAT(findings[1].text, HasSubstr("no space"));
}

// Two ranks that write to one disk: one of them is first.
TEST(DoctorFindings, TheRanksOfAHostShareItsDisk) {
  Cluster cluster;
  cluster.measured[0].write_bytes_per_second = 1e7;
  cluster.measured[2].write_bytes_per_second = 1e7;
  EXPECT_THAT(cluster.Findings(), IsEmpty());
  cluster.measured[3].write_bytes_per_second = 3e7;  // of n2, beside the 2e8 of n1
  const Finding slow = cluster.Only();
  EXPECT_EQ(slow.severity, Severity::kBad);
  EXPECT_THAT(slow.ranks, ElementsAre(3));
  EXPECT_THAT(slow.text, HasSubstr("writing to the run directory"));
}

// The measurements that a rank sends, in the order of the struct.
std::vector<double> Numbers(const RankMeasurements& m) {
  return {m.next_bytes_per_second,
          m.next_latency_seconds,
          m.ring_bytes_per_second,
          m.gflops,
          m.write_bytes_per_second,
          m.rename_seconds,
          m.gpu_flops,
          m.gpu_copy_bytes_per_second};
}
RankMeasurements Measured(const std::vector<double>& n) {
  return {.next_bytes_per_second = n[0],
          .next_latency_seconds = n[1],
          .ring_bytes_per_second = n[2],
          .gflops = n[3],
          .write_bytes_per_second = n[4],
          .rename_seconds = n[5],
          .gpu_flops = n[6],
          .gpu_copy_bytes_per_second = n[7]};
}

// What is slow only once is no fault: the best of several measurements counts.
TEST(DoctorFindings, TheFastestOfTwoMeasurements) {
  RankMeasurements two = Measured({7, 1, 2, 4, 1, 3, 4, 7});
  two.lock_excludes = true;
  const RankMeasurements best = Fastest(Measured({1, 2, 8, 3, 9, 1, 5, 6}), two);
  EXPECT_THAT(Numbers(best), ElementsAre(7, 1, 8, 4, 9, 1, 5, 7));
  EXPECT_TRUE(best.lock_excludes);
}

TEST(DoctorFacts, MeasurementsArriveAsTheyWereSent) {
  const RankMeasurements sent = Measured({1, 2, 3, 4, 5, 6, 7, 8});
  EXPECT_EQ(Numbers(*MeasurementsFromJson(MeasurementsToJson(sent))), Numbers(sent));
}

TEST(DoctorFacts, WhatCannotBeReadIsRefused) {
  EXPECT_FALSE(DoctorFactsFromJson("{").ok());
  EXPECT_FALSE(MeasurementsFromJson("{}").ok());
}

absl::StatusOr<DoctorReport> ExamineInProcess(int ranks, const ProbeOptions& options) {
  InProcessWorld world(ranks);
  std::mutex mutex;
  DoctorReport result;
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    HADAL_ASSIGN_OR_RETURN(DoctorReport report, Examine(communicator, Stream::Cpu(1), options, {}));
    const std::lock_guard lock(mutex);
    if (communicator.rank() == 1 % communicator.size()) result = std::move(report);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return result;
}

TEST(Doctor, MeasuresEveryRankAndLeavesNoFile) {
  const TemporaryDirectory directory;
  const auto report =
      ExamineInProcess(3, {.directory = directory.path(), .message_bytes = 1 << 16, .rounds = 2, .file_bytes = 1 << 16})
          .value();
  ASSERT_EQ(report.measured.size(), 3u);
  for (const RankMeasurements& measured : report.measured) {
    EXPECT_GT(measured.next_bytes_per_second, 0);
    EXPECT_GT(measured.next_latency_seconds, 0);
    EXPECT_GT(measured.ring_bytes_per_second, 0);
    EXPECT_GT(measured.gflops, 0);
    EXPECT_GT(measured.write_bytes_per_second, 0);
    EXPECT_TRUE(measured.sees_others);
    EXPECT_TRUE(measured.lock_excludes);
    EXPECT_EQ(measured.file_trouble, "");
  }
  EXPECT_THAT(*ListDirectory(directory.path()), IsEmpty());
  EXPECT_THAT(DoctorToText(report), AllOf(HasSubstr("GFLOP/s"), HasSubstr("ready for a run")));
  EXPECT_THAT(DoctorToJson(report), HasSubstr("\"findings\""));
}

TEST(Doctor, TheTableHasTheMeasurementsInTheirUnits) {
  Cluster cluster;
  cluster.measured[1] = Measured({1e9, 2e-6, 3e9, 4, 5e6, 0.006, 0, 0});
  EXPECT_THAT(
      DoctorToText({.ranks = cluster.ranks, .measured = cluster.measured}),
      HasSubstr("   1            1.00         2.00           3.00        4.0         5.00        6.0  NO, NO\n"));
}

TEST(Doctor, ADirectoryOfItsOwnOnEachRankIsNotShared) {
  const TemporaryDirectory directories[2];
  InProcessWorld world(2);
  const absl::Status status = world.Run([&](Communicator& communicator) -> absl::Status {
    const ProbeOptions options{.directory = directories[communicator.rank()].path(),
                               .message_bytes = 1 << 12,
                               .rounds = 1,
                               .file_bytes = 1 << 12};
    HADAL_ASSIGN_OR_RETURN(const DoctorReport report, Examine(communicator, Stream::Cpu(1), options, {}));
    for (const RankMeasurements& measured : report.measured) EXPECT_FALSE(measured.sees_others);
    EXPECT_FALSE(report.healthy());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(Doctor, OneRankHasNoLinks) {
  const TemporaryDirectory directory;
  const auto report = ExamineInProcess(1, {.directory = directory.path(), .file_bytes = 1 << 16}).value();
  EXPECT_TRUE(report.healthy()) << DoctorToText(report);
  EXPECT_EQ(report.measured[0].next_bytes_per_second, 0);
}

TEST(Doctor, ADirectoryThatIsNoneIsBadOnEveryRank) {
  const auto report =
      ExamineInProcess(2, {.directory = "/proc/nowhere", .message_bytes = 1 << 12, .rounds = 1, .file_bytes = 1 << 12})
          .value();
  EXPECT_FALSE(report.healthy());
  EXPECT_THAT(DoctorToText(report),
              AllOf(HasSubstr("cannot write to the run directory"), HasSubstr("not ready for a run")));
}

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
