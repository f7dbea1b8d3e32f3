// Reports why a command ended: once if all of its ranks ended for the same reason, else by each rank that has its own
// reason.
//
// A rank that ends with an error sends it to rank 0, which answers how many ranks have the same. A rank without an
// answer, because rank 0 still works or is gone, reports its error itself. An error that AllOk passed on from another
// rank ("rank 3: …") is the same error as that rank's.
//
// Waiting: it ends once all ranks have sent their errors; a rank that is still at work cannot be asked. Before training
// starts, ranks may reach the same error a second apart, because each reads its files and cuts the model by itself.
// Once they are at work, errors that all ranks have are IsShared: they come from a vote, or from sums that all ranks
// have. Every other error is one rank's own, and its peers wait for that rank. A file error gives them a moment and
// then ends the job. An error of a device or a message within a step ends it at once, since the rank has closed its
// communicators (pipeline/engine/engine.h); so each rank that fails in this way reports it itself.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// How far apart in time ranks may be that fail together.
inline constexpr absl::Duration kErrorPatience = absl::Seconds(1);
// How long a rank with an error of its own lets the others continue.
inline constexpr absl::Duration kOwnErrorPatience = absl::Milliseconds(100);

// The patience for `error`. `at_work`: all ranks have begun to train.
absl::Duration PatienceWith(const absl::Status& error, bool at_work);

// Prints "hadal COMMAND [WHO]: MESSAGE" to `out`, on the rank that is to report. Returns whether every rank has this
// error; if not, the caller must abort the job, because others may be waiting. Errors for a lost peer or a deadline are
// always a rank's own, because nobody can be asked any more.
// Blocking: rank 0 at most `patience`, another rank twice that. REQUIRES: every rank that ends with an error calls it.
bool ReportError(const std::string& command, const absl::Status& error, Communicator& communicator, std::ostream& out,
                 absl::Duration patience = kErrorPatience);

}  // namespace hadal
