// Some ranks of a communicator as a communicator of their own: rank i of the group is rank members[i] of the parent.
//
// A view, not a transport: transfers, progress, waits and errors are the parent's. So error messages name the parent's
// ranks, and an error in one group closes the parent for all its groups. The parent also has the current wait
// (CurrentWait).
// Tags below kFirstCollectiveTag pass unchanged. Two groups may therefore use the same tags only if no transfer of one
// can match a transfer of the other: the rows and columns of a grid share no pair of different ranks. Tags of
// collectives are moved into a range of the group's own, so collectives of the parent and of its groups never meet.
// Threads: as the parent (one thread a rank). Blocking: as the parent.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"

namespace hadal {

class GroupCommunicator final : public Communicator {
 public:
  // Groups of one parent that share a rank need different tag spaces.
  static constexpr int kTagSpaces = 8;

  // `parent` must outlive the group.  REQUIRES: members are different ranks of the parent, this rank among them;
  // 1 ≤ tag_space < kTagSpaces.
  GroupCommunicator(Communicator& parent, std::vector<int> members, int tag_space);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> ReceiveBehind(DeviceQueues::Queue queue, void* data, int64_t capacity_bytes, int peer,
                                            int tag) override;
  absl::Status Reserve(int64_t transfers) override { return parent_.Reserve(transfers); }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) override;
  void Progress() override { parent_.Progress(); }
  absl::Status Wait(CommRequest& request, absl::Time deadline, std::string_view what,
                    int64_t* received_bytes = nullptr) override;
  // Ends the whole job of the parent.
  void Abort(int exit_code) override { parent_.Abort(exit_code); }

 protected:
  void TakeBack() override { parent_.Withdraw(); }

 private:
  int TagOf(int tag) const;

  Communicator& parent_;
  std::vector<int> members_;
  int rank_ = -1;
  int tag_space_;
};

}  // namespace hadal
