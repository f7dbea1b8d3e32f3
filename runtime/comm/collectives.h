// Collectives built on a Communicator's point-to-point transfers, so that every transport has the same ones, with the
// same order of work. They serve set-up, a step's tail and votes, not the hot path. P ranks take O(log P) rounds: votes
// and barriers by dissemination, bytes up and down a binomial tree. Nothing is summed, so no order can change bits.
// All calls block, and all ranks make them in the same order. The timeout applies to each single wait. `what` names the
// purpose in errors.
// Errors: those of Wait, with `what` in the message; AllOk may also return a rank's own status. Tags:
// kFirstCollectiveTag and up.
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

// Marks an error that all ranks return from the same call, because they computed it from the same numbers or told each
// other. A rank that ends with such an error may wait for the others to end; with an error of its own it need not.
absl::Status AsCommonError(absl::Status error);
bool IsShared(const absl::Status& error);

class Collectives {
 public:
  Collectives(Communicator& communicator, absl::Duration timeout) : communicator_(communicator), timeout_(timeout) {}

  // Returns when all ranks have called it.
  absl::Status Barrier(std::string_view what);
  // Gives every rank `data` of `root`. The others need not know its size.
  absl::Status Broadcast(std::string& data, int root, std::string_view what);
  // Every rank's bytes, in rank order, on every rank. Sizes may differ.
  absl::StatusOr<std::vector<std::string>> AllGather(std::string_view data, std::string_view what);
  // The same for doubles: result[r] is rank r's span.
  absl::StatusOr<std::vector<std::vector<double>>> AllGather(std::span<const double> values, std::string_view what);
  // True on all ranks if `value` is true on any rank: votes ("stop", "not finite", "written").
  absl::StatusOr<bool> AnyRank(bool value, std::string_view what);
  // Turns one rank's error into an error on every rank. OK only if all are OK; otherwise the first failing rank's
  // status, IsShared. Ranks that have not failed with the same words get it with "rank R: " at its start. A rank must
  // call this whatever its own status is.
  absl::Status AllOk(const absl::Status& status, std::string_view what);

 private:
  Communicator& communicator_;
  absl::Duration timeout_;
};

}  // namespace hadal
