// Says why a command ended: once where all of its ranks ended for the same reason, else by each rank that has one of
// its own.
//
// A rank that ends with an error shows it to rank 0 and hears how many have the same. One that hears nothing, because
// rank 0 is still at work or gone, is on its own. An error in which AllOk passed on another rank's ("rank 3: …") is the
// same as that rank's.
//
// How long to wait for others? It ends as soon as all ranks have shown their errors; no rank can be asked whether it is
// still at work, because one that is answers nobody. Before training has begun ranks may come to the same error a
// second apart (each reads its files and cuts the model by itself). Once they are at work, errors that all have are
// IsShared: they come out of one vote, or of sums that all ranks have. The others are a rank's own, whose peers wait
// for this rank: a file's gives them a moment and ends the job; a device's or a message's, out of a step, ends it at
// once, since the rank has closed its communicators (pipeline/engine.h), so that each rank that fails so says it
// itself.
#pragma once

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "runtime/comm/communicator.h"

namespace hadal {

// How long ranks that fail together may be apart.
inline constexpr absl::Duration kErrorPatience = absl::Seconds(1);
// How long a rank with an error of its own lets the others work on.
inline constexpr absl::Duration kOwnErrorPatience = absl::Milliseconds(100);

// Which of them an error gets. `at_work`: all ranks have begun to train.
absl::Duration PatienceWith(const absl::Status& error, bool at_work);

// Prints "hadal COMMAND [WHO]: MESSAGE" to `out`, on the rank that is to. Returns whether every rank has this error; if
// not, the caller must abort the job, because others may be waiting. A lost peer's and a deadline's are always a rank's
// own: nobody can be asked any more.
// Blocking: rank 0 at most `patience`, another rank twice that. REQUIRES: every rank that ends with an error calls it.
bool ReportError(const std::string& command, const absl::Status& error, Communicator& communicator, std::ostream& out,
                 absl::Duration patience = kErrorPatience);

}  // namespace hadal
