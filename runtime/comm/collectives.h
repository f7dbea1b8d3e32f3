// Collectives over all ranks of a Communicator, built on its point-to-point transfers; the same on every transport. For
// set-up, votes and the end of a step, not for the hot path. P ranks take O(log P) rounds: votes and barriers by
// dissemination, bytes along a binomial tree. Nothing is summed, so the order cannot change bits.
// All calls block, and all ranks must make them in the same order. The timeout applies to each single wait. `what`
// names the purpose in errors.
// Errors: those of Communicator::Wait, with `what` in the message; AllOk may also return a status that a rank passed.
// Uses tags from Communicator::kFirstCollectiveTag on.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// Marks `error` as common: every rank returns it from the same call with the same words, because all computed it from
// the same values or voted. Only rank 0 reports a common error. Any other error is reported by the rank
// that has it, which then ends the job.
absl::Status AsCommonError(absl::Status error);
template <typename T>
absl::StatusOr<T> AsCommonError(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return AsCommonError(result.status());
}
bool IsCommonError(const absl::Status& error);

// Send `data` (its length, then its bytes) to `peer`; append what `peer` sends to `data`. Two ranks make these calls
// and the collectives in the same order. Blocking, up to `timeout` for each of both messages; `what` names the data in
// errors, which are those of Communicator::Wait.
absl::Status SendBytes(Communicator& communicator, std::string_view data, int peer, absl::Duration timeout,
                       std::string_view what);
absl::Status ReceiveBytes(Communicator& communicator, std::string& data, int peer, absl::Duration timeout,
                          std::string_view what);

class Collectives {
 public:
  // `communicator` must outlive the object.
  Collectives(Communicator& communicator, absl::Duration timeout) : communicator_(communicator), timeout_(timeout) {}

  // Returns when all ranks have called it.
  absl::Status Barrier(std::string_view what);
  // Replaces `data` on every rank by that of rank `root`. Its size on the other ranks does not matter.
  absl::Status Broadcast(std::string& data, int root, std::string_view what);
  // Returns rank 0's `result` on every rank: its bytes, or its error as a common one.
  absl::StatusOr<std::string> BroadcastResult(const absl::StatusOr<std::string>& result, std::string_view what);
  // Returns every rank's bytes on every rank, in rank order. Sizes may differ.
  absl::StatusOr<std::vector<std::string>> AllGather(std::string_view data, std::string_view what);
  // The same for doubles: result[r] has the values of rank r.
  absl::StatusOr<std::vector<std::vector<double>>> AllGather(std::span<const double> values, std::string_view what);
  // Returns true on all ranks if `value` is true on any rank. For votes ("stop", "not finite", "written").
  absl::StatusOr<bool> AnyRank(bool value, std::string_view what);
  // Turns one rank's error into a common error of every rank. OK only if all are OK; otherwise the first failing rank's
  // status, with "rank R: " in front unless all ranks have failed with the same words. A rank must call this whatever
  // its own status is.
  absl::Status AllOk(const absl::Status& status, std::string_view what);

 private:
  Communicator& communicator_;
  absl::Duration timeout_;
};

}  // namespace hadal
