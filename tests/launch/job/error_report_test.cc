#include "launch/job/error_report.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"

namespace hadal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Where all ranks report, however late a thread of a busy machine is; where one goes on, the others wait for it in
// vain.
constexpr absl::Duration kAllReport = absl::Seconds(60), kOneGoesOn = absl::Milliseconds(200);

struct Outcome {
  std::vector<std::string> text;  // of each rank
  std::vector<int> together;
};

// Ranks report their error; one that has none goes on.
Outcome Report(const std::vector<absl::Status>& errors) {
  const int ranks = static_cast<int>(errors.size());
  const bool all = std::none_of(errors.begin(), errors.end(), [](const absl::Status& error) { return error.ok(); });
  Outcome outcome{std::vector<std::string>(ranks), std::vector<int>(ranks)};
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    if (errors[rank].ok()) return absl::OkStatus();
    std::ostringstream out;
    outcome.together[rank] = ReportError("train", errors[rank], communicator, out, all ? kAllReport : kOneGoesOn);
    outcome.text[rank] = out.str();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return outcome;
}

const absl::Status kFull = absl::ResourceExhaustedError("the GPU is full"), kOk = absl::OkStatus();

TEST(ErrorReportTest, WhatAllRanksHaveIsSaidOnce) {
  const Outcome outcome = Report({kFull, kFull, kFull});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train [all 3 ranks]: the GPU is full\n", "", ""));
  EXPECT_THAT(outcome.together, Each(1));
}

TEST(ErrorReportTest, WhatAnotherRankPassedOnIsItsError) {
  const absl::Status from_0 = absl::ResourceExhaustedError("rank 0: the GPU is full");
  Outcome outcome = Report({kFull, from_0, from_0});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train [rank 0]: the GPU is full\n", "", ""));
  EXPECT_THAT(outcome.together, Each(1));
  const absl::Status from_1 = absl::ResourceExhaustedError("rank 1: the GPU is full");
  outcome = Report({from_1, kFull, from_1});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train: rank 1: the GPU is full\n", "", ""));
  EXPECT_THAT(outcome.together, Each(1));
}

TEST(ErrorReportTest, WhoPassesAnErrorOnHasNotFoundIt) {
  const Outcome outcome = Report({absl::ResourceExhaustedError("rank 1: the GPU is full"), kFull});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train: rank 1: the GPU is full\n", ""));
}

TEST(ErrorReportTest, AMessageThatOnlySpeaksOfARankIsNotPassedOn) {
  for (const char* message : {"rank 7", "rank 3 is full", "rank : full", "rank 3:full", "ranks 3: full"}) {
    const absl::Status error = absl::ResourceExhaustedError(message);
    EXPECT_THAT(Report({error, error}).text,
                ElementsAre(std::string("hadal train [all 2 ranks]: ") + message + "\n", ""));
  }
}

TEST(ErrorReportTest, AnErrorOfItsOwnIsSaidByItsRank) {
  const absl::Status other = absl::InternalError("rank of a matrix: 3");
  const Outcome outcome = Report({kFull, other, kFull});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train [rank 0 and 1 more]: the GPU is full\n",
                                        "hadal train [rank 1]: rank of a matrix: 3\n", ""));
  EXPECT_THAT(outcome.together, Each(0));
}

TEST(ErrorReportTest, ARankWhosePeersGoOnSpeaksForItself) {
  EXPECT_THAT(Report({kOk, kFull, kOk}).text, ElementsAre("", "hadal train [rank 1]: the GPU is full\n", ""));
  EXPECT_THAT(Report({kFull, kOk}).text, ElementsAre("hadal train [rank 0]: the GPU is full\n", ""));
  EXPECT_THAT(Report({kFull, kOk}).together, Each(0));
}

TEST(ErrorReportTest, ALostPeerIsEachRanksOwn) {
  for (const absl::Status& lost :
       {absl::UnavailableError("rank 2 is gone"), absl::DeadlineExceededError("rank 2 is gone")}) {
    const Outcome outcome = Report({lost, lost});
    EXPECT_THAT(outcome.text,
                ElementsAre("hadal train [rank 0]: rank 2 is gone\n", "hadal train [rank 1]: rank 2 is gone\n"));
    EXPECT_THAT(outcome.together, Each(0));
  }
}

TEST(ErrorReportTest, AtWorkOnlySharedErrorsAreWorthWaitingFor) {
  const absl::Status shared = AsCommonError(absl::OutOfRangeError("10 steps in a row were left out"));
  EXPECT_EQ(PatienceWith(shared, /*at_work=*/true), kErrorPatience);
  EXPECT_EQ(PatienceWith(kFull, /*at_work=*/true), kOwnErrorPatience);
  EXPECT_EQ(PatienceWith(kFull, /*at_work=*/false), kErrorPatience);
}

TEST(ErrorReportTest, AProcessAloneNamesNoRank) {
  const Outcome outcome = Report({kFull});
  EXPECT_THAT(outcome.text, ElementsAre("hadal train: the GPU is full\n"));
  EXPECT_THAT(outcome.together, ElementsAre(1));
}

}  // namespace
}  // namespace hadal
