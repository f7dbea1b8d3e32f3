// A Chunk computes one contiguous range of sublayers on one rank, and stores the activations of its live micro-batches.
//
// A chunk is a list of pieces: an embedding, segments (layers/segment.h), the combination that closes a stack (if it
// has one), the head. A micro-batch flows through them:
//
//   inputs (border edges) → slot → piece → piece → … → outputs (border edges) or the loss
//
// Slots: micro-batch m uses slot m mod slots, from its forward to its backward (schedule_check.h's peak_live says how
// many slots are needed). A slot stores the input of every segment and the encoder's output; without
// recomputation also what every segment saved. With recomputation, a segment's saved tensors are recomputed
// from its input, bit for bit, in a region that all segments of the rank share. Where layers combine the outputs of all
// earlier layers, segments read and write the stack's history (layer_history.h), which also crosses the border.
// Output buffers: one per direction. The engine sends (copies) them before the chunk's next compute in that direction.
// Graphs: on a device, a phase of a micro-batch is launched as one graph where nobody observes its tensors; where
// replicas wait for gradients as they become complete, as several graphs (graph_cache.h). Copies of border edges, of
// the micro-batch's block and of the losses stay outside.
// A chunk never communicates, so tests can compare it with the unsplit model. Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "layers/border.h"
#include "layers/front_end.h"
#include "layers/layer_combination.h"
#include "layers/loss_head.h"
#include "layers/purpose.h"
#include "layers/segment.h"
#include "layers/sublayer_context.h"
#include "pipeline/stage/batch_slots.h"
#include "pipeline/stage/graph_cache.h"
#include "pipeline/stage/layer_history.h"
#include "pipeline/stage/shared_activations.h"
#include "runtime/arena.h"
#include "runtime/metrics_sink.h"

namespace hadal {

struct ChunkSpec {
  int32_t first = 0, last = 0;  // sublayers [first, last) of the plan
  int32_t slots = 1;            // micro-batches live at once
  int32_t recompute_every = 0;  // sublayers per segment, more where a cut is not legal; 0: no recomputation
  Purpose purpose = Purpose::kTraining;
  bool on_device = false;         // kernels run on a device
  bool graphs = false;            // the device launches graphs
  int replicas = 1;               // of the stage, which share its gradients
  bool inputs_on_device = false;  // input edges arrive in device memory
};

class Chunk {
 public:
  // `plan` and `shared` must outlive the chunk.
  Chunk(const ModelPlan& plan, const ChunkSpec& spec, const ActivationCapacity& capacity, SharedActivations& shared,
        ArenaLayout& layout);
  void Bind(const Arena& arena);

  const ChunkSpec& spec() const { return spec_; }
  // Edges of the borders before and after this chunk; empty at the model's ends.
  const std::vector<Edge>& input_edges() const { return input_edges_; }
  const std::vector<Edge>& output_edges() const { return output_edges_; }

  // Computes a micro-batch's forward. `inputs`: one matrix for each input edge. Returns the loss if the head is on this
  // chunk, else zeros. `row_nll`: see LossHead::Losses.  REQUIRES: the slot's previous micro-batch is done.
  LossSums Forward(SublayerContext& context, std::span<const ConstAnyMatrix> inputs, Vector row_nll, StageTimes& times);
  // Computes the backward of the micro-batch whose forward was the last in its slot. `output_gradients`: one for each
  // output edge.
  void Backward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, StageTimes& times);

  // The graphs it launches; null: none.
  const GraphCache* graphs() const { return graphs_.get(); }
  // See Engine::UseGraphs.
  void UseGraphs(bool use) { uses_graphs_ = use; }

  // What Forward computed for an output edge, and Backward for an input edge.
  AnyMatrix output(size_t edge, const PackedBatch& batch) const {
    if (edge == 0 && ends_in_history_) return HistoryOf(pieces_.back()).Values(batch, output_edges_[0].entries);
    return EdgeView(output_edges_[edge].rows, output_edges_[edge].values, outputs_[edge], batch);
  }
  AnyMatrix input_gradient(size_t edge, const PackedBatch& batch) const {
    if (edge == 0 && starts_in_history_) return HistoryOf(pieces_.front()).Gradient(batch, input_edges_[0].entries);
    return EdgeView(input_edges_[edge].rows, input_edges_[edge].gradient, input_gradients_[edge], batch);
  }

 private:
  // A tensor of one micro-batch, [rows of its stack, d], at `offset` bytes of a slot.
  struct SlotTensor {
    Stack rows = Stack::kEncoder;
    Storage storage = Storage::kFloat32;
    int64_t offset = 0;
  };
  struct Piece {
    enum class Kind { kEmbedding, kSegment, kCombination, kHead } kind = Kind::kSegment;
    std::unique_ptr<FrontEnd> embedding;
    std::unique_ptr<Segment> segment;
    std::optional<LayerCombination> combination;
    std::unique_ptr<LossHead> head;
    Stack stack = Stack::kEncoder;
    int64_t history_entries = 0;  // entries the piece reads; 0: it reads `input`
    SlotTensor input;             // segments
    int64_t saved_offset = -1;    // in the slot; -1: in the shared region
  };

  void AddPieces(const ActivationCapacity& capacity, SharedActivations& shared, ArenaLayout& layout);
  void AddSegments(int32_t first, int32_t last, const ActivationCapacity& capacity, SharedActivations& shared);
  // Adds the history of the layers [first, last) and the combination that closes them; called before AddSegments.
  void AddHistory(int32_t first, int32_t last, const ActivationCapacity& capacity, ArenaLayout& layout);
  void AddCombination(int32_t last, const ActivationCapacity& capacity);
  int64_t ReserveInSlot(int64_t bytes);
  SlotTensor ReserveInSlot(Stack rows, Storage storage, const ActivationCapacity& capacity);
  AnyMatrix EdgeView(Stack rows, Storage storage, std::byte* data, const PackedBatch& batch) const;
  std::byte* Slot(const PackedBatch& batch) const { return slots_ + batch.micro_batch % spec_.slots * slot_bytes_; }
  AnyMatrix SlotView(const SlotTensor& tensor, const PackedBatch& batch) const;
  AnyMatrix EncoderOutputView(const PackedBatch& batch) const;
  AnyMatrix HeadInput(const PackedBatch& batch) const {
    return {head_input_, batch.target_rows(), d_model_, plan_.compute_storage};
  }
  std::byte* SavedOf(const Piece& piece, const PackedBatch& batch) const;
  // Whether an edge of the border before sublayer `border` is the encoder's output.
  bool IsEncoderOutput(const Edge& edge, int32_t border) const {
    return edge.kind == EdgeKind::kEncoderOutput || border == plan_.target_embedding();
  }
  // Whether the output of piece `index` is the encoder's output.
  bool MakesEncoderOutput(size_t index) const;
  // The buffer of a border edge's gradient during the chunk's backward.
  AnyMatrix EdgeGradient(const Edge& edge, int32_t border, int64_t rows) const {
    return IsEncoderOutput(edge, border) ? AnyMatrix(shared_.encoder_output_gradient(rows))
                                         : shared_.gradient(edge.rows, rows);
  }
  const LayerHistory& HistoryOf(const Piece& piece) const { return *histories_[static_cast<size_t>(piece.stack)]; }
  // What a segment or a combination reads, and the gradient of the history that it reads (empty if it reads none).
  AnyMatrix InputOf(const Piece& piece, const PackedBatch& batch) const;
  Matrix HistoryGradientOf(const Piece& piece, const PackedBatch& batch) const;
  // The entry of the history that piece `index` writes; −1: none.
  int64_t EntryOf(size_t index) const;
  // Where piece `index` writes the residual stream: the next segment's input, the encoder's output, the head's input or
  // the border.
  AnyMatrix OutputOf(size_t index, const PackedBatch& batch) const;
  // The buffer for the gradient of that output, stored as the residual stream. If the residual stream is fp32 and the
  // piece writes an entry of the history: that entry's gradient. Else: the residual stream gradient that all pieces
  // share.
  AnyMatrix OutputGradientOf(size_t index, const PackedBatch& batch) const;
  // The fp32 gradient of the history's entry that piece `index` writes.  REQUIRES: EntryOf(index) ≥ 0.
  AnyMatrix EntryGradient(size_t index, const PackedBatch& batch) const;
  // Runs `work` with `context`, on a device as a graph if possible.
  void RunPhase(SublayerContext& context, GraphPhase phase, const std::function<void(SublayerContext&)>& work);
  // Records `work`, a step's last backward with replicas; cuts the graph wherever more sublayers' gradients are
  // complete.
  void RecordInParts(SublayerContext& context, const GraphCache::Cut& cut,
                     const std::function<void(SublayerContext&)>& work) const;
  void ForwardPieces(SublayerContext& context);
  void BackwardPieces(SublayerContext& context, StageTimes& times);
  void LoadInputs(const SublayerContext& context, std::span<const ConstAnyMatrix> inputs);
  void CopyEncoderOutput(const SublayerContext& context);
  void LoadOutputGradients(const Stream& stream, std::span<const ConstAnyMatrix> output_gradients,
                           const PackedBatch& batch);
  void BackwardSegment(SublayerContext& context, const Piece& piece, AnyMatrix d_residual, StageTimes& times);
  void BackwardCombination(SublayerContext& context, const Piece& piece, AnyMatrix d_residual, StageTimes& times);
  void StoreInputGradients(const SublayerContext& context);

  const ModelPlan& plan_;
  ChunkSpec spec_;
  int64_t d_model_;
  const SharedActivations& shared_;
  std::vector<Edge> input_edges_, output_edges_;
  std::vector<Piece> pieces_;
  std::optional<LayerHistory> histories_[2];  // [stacks]
  bool starts_in_history_ = false, ends_in_history_ = false;
  std::optional<SlotTensor> encoder_output_;  // if a cross-attention or a later border needs it
  std::optional<SlotTensor> head_gradient_;   // gradient of the head's input; the head's forward computes it
  int64_t slot_bytes_ = 0;
  std::optional<BatchSlots> batches_;   // on a device
  std::unique_ptr<GraphCache> graphs_;  // on a device, or null
  bool uses_graphs_ = true;

  ArenaSlice slots_slice_, head_input_slice_;
  std::vector<ArenaSlice> output_slices_, input_gradient_slices_;
  std::byte* slots_ = nullptr;
  std::byte* head_input_ = nullptr;
  std::vector<std::byte*> outputs_, input_gradients_;
};

}  // namespace hadal
