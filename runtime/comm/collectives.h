// Collectives on top of a Communicator's point-to-point transfers, so that every transport has the same ones with the same
// order of work. They serve set-up, a step's tail and votes, not the hot path. All are blocking, all ranks call them in the
// same order, each takes a timeout for every single wait. `what` names the purpose in errors. P ranks cost O(log P) rounds:
// votes and barriers go round by dissemination, bytes up and down a binomial tree. No sums are formed, so no order can change bits.
// Errors: those of Wait, with `what` in the message; all but AllOk's own, which is a rank's status. Tags: kFirstCollectiveTag and up.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// Marks an error that all ranks return from the same call, since they came to it by the same numbers or told each other. Why: whoever ends
// with it may wait for the others', and who ends with one of its own need not.
absl::Status AsShared(absl::Status error);
bool IsShared(const absl::Status& error);

class Collectives {
 public:
  Collectives(Communicator& communicator, absl::Duration timeout) : communicator_(communicator), timeout_(timeout) {}

  // Returns when all ranks have called it.
  absl::Status Barrier(std::string_view what);
  // `data` of `root` becomes everybody's; sizes need not be known beforehand.
  absl::Status Broadcast(std::string& data, int root, std::string_view what);
  // Every rank's bytes, in rank order, on every rank. Sizes may differ.
  absl::StatusOr<std::vector<std::string>> AllGather(std::string_view data, std::string_view what);
  // The same for doubles: result[r] is rank r's span.
  absl::StatusOr<std::vector<std::vector<double>>> AllGather(std::span<const double> values, std::string_view what);
  // True on all ranks when it is true on any: votes ("stop", "not finite", "written").
  absl::StatusOr<bool> AnyRank(bool value, std::string_view what);
  // Turns one rank's error into an error on every rank: OK only when all are OK; otherwise the first failing rank's status
  // (with "rank R: " in front on ranks that have not failed in the same words), IsShared. A rank must call it whatever its own status is.
  absl::Status AllOk(const absl::Status& status, std::string_view what);

 private:
  Communicator& communicator_;
  absl::Duration timeout_;
};

}  // namespace hadal
