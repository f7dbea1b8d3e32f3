// Relays the per-sublayer scales ω that Admin's initialisation computes (Liu et al. 2020, its "profiling" pass;
// layers/residual_profile.h) through the pipeline.
// Why: each ω is computed from the one before it, in one forward pass over all sublayers. A chunk (the consecutive
// sublayers that a rank computes at once) therefore sends the next sublayer's ω along with its output activation.
// Order: a chunk posts the message with ω before its activation, and the receiver waits for it after the activation, so
// the two transfers cannot block each other. The next chunk may be on the same rank.
// At the end, Gather distributes all values to all ranks of all replicas, and each rank stores those of its parameters.
// Threads: one. Blocking: Receive, Drain, and Gather, which all ranks call together. Errors: those of the communicator;
// after one the job must end.
#pragma once

#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/residual_profile.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class ProfileRelay {
 public:
  // Everything referenced must outlive the relay. `stream` and `parameters`: those of this rank's Stage. `timeout`: of
  // each wait for a peer.
  ProfileRelay(Communicator& pipeline, absl::Duration timeout, const Stream& stream, const ParameterStore& parameters)
      : pipeline_(pipeline),
        timeout_(timeout),
        stream_(stream),
        parameters_(parameters),
        profile_(stream, parameters) {}

  ResidualProfile& profile() { return profile_; }
  // Receives the next sublayer's ω from rank `peer` of the pipeline; profile() continues with it.
  absl::Status Receive(int peer);
  // Posts the ω with which profile() would continue to rank `peer` of the pipeline.
  absl::Status Send(int peer);
  // Waits until all posted sends are done.
  absl::Status Drain();
  // All-gathers the values of all ranks of `world`, fills this rank's parameter vectors ω with them, and returns all
  // entries in the order of the sublayers.
  absl::StatusOr<std::vector<ResidualProfile::Entry>> Gather(Collectives& world) const;

 private:
  struct Posted {
    double omega = 0;
    CommRequest request;
  };

  Communicator& pipeline_;
  absl::Duration timeout_;
  const Stream& stream_;
  const ParameterStore& parameters_;
  ResidualProfile profile_;
  std::deque<Posted> posted_;  // a deque, whose elements do not move
};

}  // namespace hadal
