// The tags of all messages except those on channels and in collectives, in one list so that none is used twice.
//
// 0 … kFirstMessageTag - 1   channels of a schedule (pipeline/schedule/schedule.h) and of the decoder
//                            (pipeline/decode/decode_links.h), numbered there
// kFirstMessageTag …         this list; each comment starts with the file that uses the tag
// 32,000 …                   collectives.h
#pragma once

namespace hadal {

inline constexpr int kFirstMessageTag = 30000;

enum MessageTag : int {
  // pipeline/exchange/tied_tables: a stage's gradient of a shared embedding table, to the first stage that uses it
  kTiedGradientTag = kFirstMessageTag,
  kTiedWeightTag,      // pipeline/exchange/tied_tables: the updated table, to the other stages that use it
  kInitializationTag,  // pipeline/exchange/parameter_broadcast: new weights from rank 0
  kReplicaPieceTag,    // pipeline/exchange/replica_reduction: a piece of a gradient, to its owner
  kReplicaResultTag,   // pipeline/exchange/replica_reduction: the owner's result, to the other replicas
  kProfileTag,         // pipeline/exchange/profile_relay: ω of Admin for the next stage (layers/residual_profile.h)
  kDecodeCommandTag,   // pipeline/decode/decode_links: commands of the rank that runs the beam search
  kClockTag,           // pipeline/step_tracer: clock readings
  kMemoryCopyTag,      // pipeline/checkpoint/memory_copies: a rank's file to another host
  kDoctorTag,          // tools/doctor/doctor_probe: measured messages
  kNcclIdTag = 31000,  // runtime/comm/nccl_communicator: NCCL's id of a link
  kNcclControlTag,     // runtime/comm/nccl_communicator: offers and grants
};

}  // namespace hadal
