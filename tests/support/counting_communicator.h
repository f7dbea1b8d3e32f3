// Forwards to another communicator, and counts the bytes that this rank sends with tags of a range.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/comm/communicator.h"

namespace hadal::testing {

class CountingCommunicator : public Communicator {
 public:
  // Tags in [first, end). `bytes` may be other ranks', too.
  CountingCommunicator(Communicator& of, int first, int end, std::atomic<int64_t>& bytes)
      : of_(of), first_(first), end_(end), bytes_(bytes) {}
  int rank() const override { return of_.rank(); }
  int size() const override { return of_.size(); }
  absl::StatusOr<CommRequest> Send(const void* data, int64_t bytes, int peer, int tag) override {
    if (tag >= first_ && tag < end_) bytes_ += bytes;
    return of_.Send(data, bytes, peer, tag);
  }
  absl::StatusOr<CommRequest> Receive(void* data, int64_t capacity_bytes, int peer, int tag) override {
    return of_.Receive(data, capacity_bytes, peer, tag);
  }
  absl::StatusOr<bool> Test(CommRequest& request, int64_t* received_bytes) override {
    return of_.Test(request, received_bytes);
  }
  void Progress() override { of_.Progress(); }
  void Abort(int exit_code) override { of_.Abort(exit_code); }

 private:
  Communicator& of_;
  const int first_, end_;
  std::atomic<int64_t>& bytes_;
};

}  // namespace hadal::testing
