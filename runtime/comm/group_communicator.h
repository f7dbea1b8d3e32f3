// A communicator of some ranks of a parent communicator: rank i of the group is rank members[i] of the parent.
//
// Transfers, progress, waits and errors are the parent's: error messages name the parent's ranks, an error in one group
// closes the parent for all its groups, and CurrentWait is the parent's.
// Tags below kFirstCollectiveTag are the parent's tags, unchanged. So two groups may use the same tags only if no pair
// of ranks is in both, as with the rows and columns of a grid. Tags of collectives are moved into a range of the
// group's own, its tag space, so that collectives of the parent and of its groups never match.
// Threads: as the parent (one thread per rank). Blocking: as the parent.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"

namespace hadal {

class GroupCommunicator final : public Communicator {
 public:
  // Tag space 0 is the parent's.
  static constexpr int kTagSpaces = 8;

  // `parent` must outlive the group. REQUIRES: members are different ranks of the parent, this rank among them; 1 ≤
  // tag_space < kTagSpaces, and no other group of the parent that has this rank has the same tag space.
  GroupCommunicator(Communicator& parent, std::vector<int> members, int tag_space);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override;
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override;
  // An exchange between the ranks of this group alone, posted on the parent. REQUIRES: the members make exchanges only
  // through this group, neither through the parent itself nor through another group.
  absl::Status Exchange(std::span<const ExchangePart> parts, int tag, DeviceQueues::Event after,
                        std::vector<CommRequest>& requests) override;
  absl::Status Reserve(int64_t transfers) override { return parent_.Reserve(transfers); }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes = nullptr) override;
  void Progress() override { parent_.Progress(); }
  absl::Status Wait(CommRequest& request, absl::Time deadline, std::string_view what, int64_t* received_bytes = nullptr,
                    const std::function<absl::Status()>* meanwhile = nullptr) override;
  // Ends the parent's whole job.
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
