// Admin's profile on its way through the pipeline: the ω of the next sublayer goes from chunk to chunk with the
// activation.
//
// A chunk's message is posted before its activation is, and its receiver asks for it after the activation, so that the
// two never wait for each other; a chunk may follow another of the same rank.
// At the end all ranks, other replicas' too, gather what was found.
// Threads: one. Blocking: Receive, Drain and Share. After an error the job can only end.
#pragma once

#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "layers/residual_profile.h"
#include "runtime/comm/collectives.h"
#include "runtime/comm/communicator.h"

namespace hadal {

class ProfileRelay {
 public:
  // `pipeline` must outlive the relay.
  ProfileRelay(Communicator& pipeline, absl::Duration timeout) : pipeline_(pipeline), timeout_(timeout) {}

  ResidualProfile& profile() { return profile_; }
  // The profile goes on from where rank `peer` left it.
  absl::Status Receive(int peer);
  // Posts it for rank `peer`.
  absl::Status Send(int peer);
  // Waits for what was posted.
  absl::Status Drain();
  // Sets the vectors that `parameters` holds to what any rank of `world` found, and returns it in the order of the
  // sublayers.
  absl::StatusOr<std::vector<ResidualProfile::Entry>> Share(const Stream& stream, const ParameterStore& parameters,
                                                            Collectives& world) const;

 private:
  struct Posted {
    double omega = 0;
    CommRequest request;
  };

  Communicator& pipeline_;
  absl::Duration timeout_;
  ResidualProfile profile_;
  std::deque<Posted> posted_;  // whose elements stay where they are
};

}  // namespace hadal
