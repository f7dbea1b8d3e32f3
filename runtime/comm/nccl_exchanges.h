// The exchanges that a rank of an NcclCommunicator has posted. An exchange is a set of messages with the other ranks of
// a group, sent as one NCCL group (ncclGroupStart, ncclGroupEnd). Exchanges run one after another, in the order posted.
//
//   posted     Post has queued it; exchange n of a rank is exchange n of all ranks of the group
//   declared   its bytes may be accessed, and this rank has sent that to every other rank (NcclMessage::Word::kReady)
//   started    all ranks have declared it: NCCL's calls are made
//   ended      all its messages have ended on this rank
//
// A rank starts an exchange only if all ranks have declared it. A started exchange waits only for the ends of earlier
// exchanges, not for any rank's kernels, so it ends (nccl_communicator.md).
// A rank has at most kMostUnderWay exchanges started and not ended.
// Threads: only the thread that makes the device's calls. Blocking: only MakeEnds. Errors: those of NcclLink and of the
// host communicator; Internal if two ranks disagree on the bytes between them, which is found before a byte moves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/nccl_control_channel.h"
#include "runtime/comm/nccl_link.h"
#include "runtime/device.h"

namespace hadal {

class NcclExchanges {
 public:
  static constexpr int kMostUnderWay = 4;

  // `link`: the group's, with direction kBoth (nccl_link.h). Device and link must outlive the object.
  NcclExchanges(Device& device, NcclLink& link) : device_(device), link_(link) {}
  // REQUIRES: nothing is in progress (the link is destroyed).
  ~NcclExchanges();
  NcclExchanges(const NcclExchanges&) = delete;
  NcclExchanges& operator=(const NcclExchanges&) = delete;

  // Makes the device events that mark the ends of exchanges. Must be called once, before all other methods. Errors:
  // ResourceExhausted.
  absl::Status MakeEnds();
  // Adds another rank of the group. `channel` must outlive the object.
  void AddMember(int rank, NcclControlChannel& channel) { members_.emplace(rank, Member{.channel = &channel}); }

  // Returns the exchange's number. `after`: see Communicator::Exchange. REQUIRES: the peers are members.
  int64_t Post(std::span<const ExchangePart> parts, DeviceQueues::Event after);
  // Declares the posted exchanges whose bytes may be accessed. Must not be called in the wait before a standstill
  // (nccl_communicator.h).
  absl::Status Declare();
  // Must be called when the declaration of `member`'s next exchange arrives. `bytes`: what it sends to this rank.
  void Hear(int member, int64_t bytes) { members_.at(member).declared_bytes.push_back(bytes); }
  // Starts the exchanges that all ranks have declared.
  absl::Status Start();
  // Notes which exchanges have ended, for Ended and under_way.
  void NoteEnds();

  bool Ended(int64_t number) const { return number < ended_; }
  size_t under_way() const { return started_ - ended_; }

 private:
  struct Member {
    NcclControlChannel* channel = nullptr;
    std::deque<int64_t> declared_bytes;  // of exchanges this rank has not started, from started_ on
  };
  struct Posted {
    std::vector<ExchangePart> parts;
    DeviceQueues::Event after = nullptr;
  };
  Posted& At(int64_t number) { return posted_[number - ended_]; }
  // Whether all ranks have declared exchange started_.
  bool AllHaveDeclared() const;
  // Checks that the members declared for `exchange` as many bytes as this rank expects to receive from each.
  absl::Status CheckBytes(const Posted& exchange) const;

  Device& device_;
  NcclLink& link_;
  std::map<int, Member> members_;          // by rank
  std::deque<Posted> posted_;              // exchange ended_ and later ones
  int64_t declared_ = 0;                   // ended_ ≤ started_ ≤ declared_ ≤ ended_ + posted_.size()
  int64_t started_ = 0, ended_ = 0;        // counts, and numbers of the next ones
  std::vector<DeviceQueues::Event> ends_;  // [kMostUnderWay]; exchange n uses n mod kMostUnderWay
};

}  // namespace hadal
