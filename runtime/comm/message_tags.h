// The tags of all messages except a schedule's channels, in one list so that none is used twice.
//
// 0 … kFirstMessageTag - 1   channels of a schedule (pipeline/schedule) and the decoder's links, numbered there
// kFirstMessageTag …         this list
// 32,000 …                   collectives.h
#pragma once

namespace hadal {

inline constexpr int kFirstMessageTag = 30000;

enum MessageTag : int {
  // pipeline/exchange/tied_tables: the gradient of one use of a table, to the stage of the first use
  kTiedGradientTag = kFirstMessageTag,
  kTiedWeightTag,      // the updated matrix, to the other uses
  kInitializationTag,  // pipeline/exchange/parameter_broadcast: new weights from rank 0
  kReplicaPieceTag,    // pipeline/exchange/replica_reduction: a piece of a gradient, to its owner
  kReplicaResultTag,   // the owner's result, to the others
  kProfileTag,         // pipeline/exchange/profile_relay: the running sum of Admin's profile
  kDecodeCommandTag,   // pipeline/decode/decode_links: commands of the searching rank
  kTraceTag,           // pipeline/step_tracer: a rank's events to rank 0
  kClockTag,           // pipeline/step_tracer: clock readings
  kDoctorTag,          // tools/doctor/doctor_probe: measured messages
  kNcclIdTag = 31000,  // runtime/comm/nccl_communicator: NCCL's id of a link
  kNcclControlTag,     // runtime/comm/nccl_communicator: offers and grants
};

}  // namespace hadal
