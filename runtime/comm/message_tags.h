// The tags of all messages that are not a schedule's channels: one list, so that no two kinds of message between two ranks share a number.
//
// 0 … kFirstMessageTag - 1   channels of a schedule (pipeline/schedule.h) and the decoder's links: their own numbers
// kFirstMessageTag …         what is listed here
// 32,000 …                   collectives.h
#pragma once

namespace hadal {

inline constexpr int kFirstMessageTag = 30000;

enum MessageTag : int {
  kTiedGradientTag = kFirstMessageTag,  // pipeline/tied_tables: a use's gradient to the first use's stage
  kTiedWeightTag,                       // the updated matrix back
  kInitializationTag,                   // pipeline/parameter_broadcast: new weights from rank 0
  kReplicaPieceTag,                     // pipeline/replica_reduction: a piece of a gradient to its owner
  kReplicaResultTag,                    // what the owner made of it, back
  kProfileTag,                          // pipeline/profile_relay: the running value of Admin's profile
  kDecodeCommandTag,                    // pipeline/decode/decode_links: from the rank that searches
  kTraceTag,                            // pipeline/step_tracer: a rank's events to rank 0
  kClockTag,                            // pipeline/clock_alignment: what time it is
  kErrorReportTag,                      // launch/error_report: a rank's error to rank 0, and how many have it
  kDoctorTag,                           // tools/doctor/doctor_probe: measured messages
  kNcclIdTag = 31000,                   // runtime/comm/nccl_communicator: NCCL's id of a link
  kNcclControlTag,                      // offers and grants
};

}  // namespace hadal
