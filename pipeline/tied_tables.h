// A matrix used on several stages (tied embeddings): its gradients summed once a step, its weights kept equal.
//
// Every use has its own gradient buffer in every layout; the stage of the first use owns the parameter's state and adds
//   g = g(use 1) + g(use 2) + g(use 3)        uses in ascending sublayer order, fp32
// wherever the uses lie, so that a split changes no bit. After the update the owner sends the new weights to the other
// ranks that use the table, as these read them: rounded, where products read bf16. Both travel piece by piece; where
// the tables are on a device and the communicator moves the host's memory, through one bounded buffer there.
// Threads: one. Blocking: both verbs; every wait has the timeout given. Every rank of the pipeline calls both, in the
// same order.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/pipeline_plan.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"

namespace hadal {

class TiedTables {
 public:
  TiedTables(const ModelPlan& plan, const PipelinePlan& pipeline, int rank, const Stream& stream, ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);

  // On the owner, the first use's gradient becomes the sum.
  absl::Status ReduceGradients(const Stream& stream, const ParameterStore& parameters, absl::Duration timeout);
  // Every rank that uses a table has the owner's weights.
  absl::Status ShareWeights(const Stream& stream, const ParameterStore& parameters, absl::Duration timeout);

 private:
  struct Use {
    int32_t sublayer = 0;
    int rank = 0;
  };
  struct Table {
    int32_t parameter = 0;
    std::vector<Use> uses;  // ascending; uses[0] is the owner's
  };
  absl::Status AddReceived(const Stream& stream, Vector sum, const Use& use, absl::Duration timeout);
  absl::Status SendPieces(const Stream& stream, AnyMatrix values, int peer, int tag, absl::Duration timeout);
  absl::Status ReceivePieces(const Stream& stream, AnyMatrix values, int peer, int tag, absl::Duration timeout);

  int rank_;
  bool through_host_ = false;
  std::vector<Table> tables_;
  ArenaSlice buffer_slice_, host_slice_;
  Vector buffer_;       // what was received, to be added
  Vector host_buffer_;  // where messages lie when tables are on a device
  Communicator* communicator_ = nullptr;
};

}  // namespace hadal
