// TiedTables keeps a matrix that several stages use (tied embeddings) consistent: it sums the gradients of all uses
// once per step and copies the updated weights to the ranks of all uses.
//
// Every use has its own gradient buffer, even if several uses are on one stage. The stage of the first use owns the
// parameter's state. For each group of the replica's micro-batches it adds
//   g = g(use 1) + g(use 2) + …        uses in ascending sublayer order, fp32
// and then it adds the groups (pipeline/layout/sum_tree.h), so the bits depend neither on how stages divide the model
// nor on the number of replicas. After the update the owner sends the new weights to the other ranks that use the
// table, in the type that their kernels read (rounded if products read bf16).
// Gradients and weights are sent in pieces of at most 4 MiB; while a rank waits for a piece, the next is already
// posted. If the tables are on a device and the communicator transfers host memory, pieces are copied through bounded
// host buffers.
// Threads: one. Blocking: both calls; each wait takes at most the given timeout. Every rank of the pipeline makes both
// calls, in the same order. Errors: those of Communicator::Wait.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "layers/parameter_store.h"
#include "pipeline/layout/pipeline_layout.h"
#include "pipeline/stage/group_sums.h"
#include "runtime/arena.h"
#include "runtime/comm/communicator.h"
#include "runtime/stream.h"

namespace hadal {

class TiedTables {
 public:
  static constexpr int kUnderWay = 2;  // pieces posted at once

  TiedTables(const ModelPlan& plan, const PipelineLayout& pipeline, int rank, const Stream& stream,
             ArenaLayout& layout);
  void Bind(const Arena& arena, Communicator& communicator);

  // On each table's owner: for each group adds the other uses' gradients to the first use's; then adds the groups.
  absl::Status ReduceGradients(const Stream& stream, const GroupSums& groups, absl::Duration timeout);
  // Sends the owner's weights to every rank that uses the table.
  absl::Status DistributeWeights(const Stream& stream, const ParameterStore& parameters, absl::Duration timeout);

 private:
  struct Use {
    int32_t sublayer = 0;
    int rank = 0;
  };
  struct Table {
    int32_t parameter = 0;
    std::vector<Use> uses;  // ascending; uses[0] is the owner's
  };
  // A table's gradient or weights that this rank sends to `peer` or receives from it.
  struct Passage {
    AnyMatrix values;
    int peer = 0, tag = 0;
  };
  absl::Status SendPieces(const Stream& stream, const Passage& passage, absl::Duration timeout);
  // `adds`: whether the received pieces are added to passage.values (fp32) or replace them.
  absl::Status ReceivePieces(const Stream& stream, const Passage& passage, bool adds, absl::Duration timeout);

  int rank_;
  bool through_host_ = false;  // whether messages are in host memory while the tables are on a device
  std::vector<Table> tables_;
  ArenaSlice buffer_slice_, host_slice_;
  Vector buffer_;       // pieces that are received to be added
  Vector host_buffer_;  // pieces on their way, if through_host_
  Communicator* communicator_ = nullptr;
};

}  // namespace hadal
