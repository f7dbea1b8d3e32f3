#include "launch/error_report.h"

#include <new>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/in_process_communicator.h"

namespace hadal {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Outcome {
  std::vector<std::string> text;  // of each rank
  std::vector<int> together;
};

// Each rank ends with its error; OK: with the error that AllOk gives it, if `vote`, else it is still at work.
Outcome Report(const std::vector<absl::Status>& errors, bool vote) {
  const int ranks = static_cast<int>(errors.size());
  Outcome outcome{std::vector<std::string>(ranks), std::vector<int>(ranks)};
  InProcessWorld world(ranks);
  const absl::Status status = world.Run([&](Communicator& communicator) {
    const int rank = communicator.rank();
    absl::Status error = errors[rank];
    if (vote) error = Collectives(communicator, absl::Seconds(60)).AllOk(error, "a file");
    if (error.ok()) return absl::OkStatus();
    std::ostringstream out;
    outcome.together[rank] = ReportError("train", error, communicator, out) ? 1 : 0;
    outcome.text[rank] = out.str();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return outcome;
}

const absl::Status kFull = absl::ResourceExhaustedError("the GPU is full"), kOk = absl::OkStatus();

TEST(ErrorReportTest, AnErrorThatAllRanksHaveIsPrintedOnce) {
  const absl::Status common = AsCommonError(kFull);
  for (const Outcome& outcome :
       {Report({kFull, kFull, kFull}, /*vote=*/true), Report({common, common, common}, false)}) {
    EXPECT_THAT(outcome.text, ElementsAre("hadal train [all 3 ranks]: the GPU is full\n", "", ""));
    EXPECT_THAT(outcome.together, Each(1));
  }
}

TEST(ErrorReportTest, AnErrorThatWasVotedOnNamesItsRank) {
  for (const int failing : {0, 1, 2}) {
    std::vector<absl::Status> errors(3);
    errors[failing] = kFull;
    const Outcome outcome = Report(errors, /*vote=*/true);
    const std::string expected = absl::StrCat("hadal train [all 3 ranks]: rank ", failing, ": the GPU is full\n");
    EXPECT_THAT(outcome.text, ElementsAre(expected, "", ""));
    EXPECT_THAT(outcome.together, Each(1));
  }
}

TEST(ErrorReportTest, AnErrorOfItsOwnIsPrintedByItsRank) {
  const Outcome outcome = Report({kOk, kFull, kOk}, /*vote=*/false);
  EXPECT_THAT(outcome.text, ElementsAre("", "hadal train [rank 1]: the GPU is full\n", ""));
  EXPECT_THAT(outcome.together, Each(0)) << "the job must be aborted";
}

TEST(ErrorReportTest, RanksWithDifferentErrorsEachPrintTheirs) {
  EXPECT_THAT(Report({kFull, absl::InternalError("broken")}, /*vote=*/false).text,
              ElementsAre("hadal train [rank 0]: the GPU is full\n", "hadal train [rank 1]: broken\n"));
}

TEST(ErrorReportTest, ALostPeerIsEachRanksOwn) {
  for (const absl::Status& lost :
       {absl::UnavailableError("rank 2 is gone"), absl::DeadlineExceededError("rank 2 is gone")}) {
    const Outcome outcome = Report({AsCommonError(lost), lost}, /*vote=*/false);
    EXPECT_THAT(outcome.text,
                ElementsAre("hadal train [rank 0]: rank 2 is gone\n", "hadal train [rank 1]: rank 2 is gone\n"));
    EXPECT_THAT(outcome.together, Each(0));
  }
}

TEST(ErrorReportTest, AProcessAloneNamesNoRank) {
  const Outcome outcome = Report({kFull}, /*vote=*/false);
  EXPECT_THAT(outcome.text, ElementsAre("hadal train: the GPU is full\n"));
  EXPECT_THAT(outcome.together, ElementsAre(1));
}

TEST(ErrorReportTest, WhatAChildHasPrintedIsNotRepeated) {
  EXPECT_THAT(Report({absl::InternalError("")}, /*vote=*/false).text, ElementsAre(""));
}

TEST(Withdrawal, WhatIsNotThrownIsTheBodys) {
  InProcessWorld world(1);
  const auto body = [](absl::StatusOr<int> value) { return [value] { return value; }; };
  EXPECT_EQ(*WithdrawOnException(world.communicator(0), body(5)), 5);
  EXPECT_EQ(WithdrawOnException(world.communicator(0), body(absl::AbortedError("own"))).status(),
            absl::AbortedError("own"));
  EXPECT_TRUE(world.communicator(0).Send("", 0, 0, 1).ok()) << "its communicator stays open";
}

// What the body has posted lies in memory that unwinding has given back: a peer's message must not go there.
TEST(Withdrawal, TransfersAreTakenBack) {
  InProcessWorld world(2);
  int posted = 17;
  const absl::Status status = WithdrawOnException(world.communicator(1), [&]() -> absl::Status {
    EXPECT_TRUE(world.communicator(1).Receive(&posted, sizeof(posted), 0, 1).ok());
    throw std::bad_alloc();
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not enough memory"));
  const int sent = 4;
  const absl::StatusOr<CommRequest> request = world.communicator(0).Send(&sent, sizeof(sent), 1, 1);
  EXPECT_EQ(posted, 17);
}

}  // namespace
}  // namespace hadal
