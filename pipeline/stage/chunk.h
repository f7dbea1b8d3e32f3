// A Chunk computes one contiguous range of sublayers on one rank, and stores the activations of its live micro-batches.
//
// A chunk is a list of parts (layers/chunk_part.h): embeddings, segments (runs of residual sublayers), the layer
// combination at the end of a stack (if it has one), and the loss head. Forward runs through them in order, backward in
// reverse:
//
//   inputs (border edges) → part → part → … → outputs (border edges) or the loss
//
// Tensors: each is written by one part or received over the border, and has a last reader, a part or the border.
// Besides the residual stream, a stack may have a second stream (layers/second_stream.h), which its segments update in
// place, or a history, written one entry at a time: the outputs of all its layers so far (layers/layer_combination.h),
// or the sums of its blocks, beside which the open block's sum passes from part to part (layers/block_reader.h).
// Memory of a tensor:
//
//   also read in backward      one slot per live micro-batch
//   read in forward only       one buffer: for the head's input, and for tensors that only the border after the chunk
//                              reads
//   gradient                   one buffer. The rank's chunks share those of a stack's residual stream (parts update
//                              it in place), of its second stream (equal for all sublayers) and of the encoder's
//                              output; a history's gradient has a buffer in each chunk
// A gradient with several readers of its tensor is fp32. In backward, it starts at zero (at a border: as received); the
// readers add to it in descending order, and the writer gets it converted to the stack's type.
// Slots: micro-batch m uses slot m mod slots, from its forward to the end of its backward (`slots` is peak_live of
// schedule_check.h). Slots also keep what a segment saved, unless it is recomputed: then its saved tensors are made
// again from its input, bit for bit, in memory that all recomputed segments of the rank share. A chunk may have both.
// Borders: an edge carries a tensor or the first entries of one; forward, of a history only those that the receiving
// rank lacks (the others are copied within the rank). The engine sends (copies) a border's tensors before the chunk's
// next compute in that direction.
// Backward: parts run from last to first, and each part's steps (a segment has one per sublayer) in descending order. A
// step is BackwardInput, which writes the step's pending tensors, then BackwardWeight, which reads them. A device
// launches the gradients of weights for several steps together (kernels/gradient_batch.h): at the end of a backward or
// half, before a sublayer's gradients are reported complete, and, in a whole backward, after kDeviceSteps steps of a
// part, so there is memory for the pending tensors of so many steps. If these gradients have a queue of their own
// (ChunkSpec::forks), they run beside as many steps more: both pending tensors and a segment's recomputed tensors then
// have two places, in turn. A backward in two halves (schedule.h) first runs BackwardInput of all steps, later
// BackwardWeight of all steps. In between, a slot that all chunks of the rank share keeps the pending tensors of all
// steps and, with recomputation, one buffer keeps what all segments have recomputed.
// Saved tensors that only the input half reads have slots of their own: micro-batch m uses slot m mod input_slots.
// input_slots divides `slots`, so one slot number determines both addresses in a graph. Weight halves of several
// micro-batches run sublayer by sublayer, so that the gradients of the deepest sublayers are complete first.
// Graphs: on a device, each phase (forward, backward or half) of a micro-batch is launched as one CUDA graph, unless a
// DepthObserver reads its tensors; as several graphs if replicas exchange gradients as they become complete
// (graph_cache.h). Copies of border edges, of the micro-batch's block (batch_slots.h) and of the losses are outside the
// graphs. The calls only enqueue work; they wait for the device only if a border's tensors pass through host memory.
// A chunk never communicates, so tests can compare it with the unsplit model. Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "layers/border.h"
#include "layers/chunk_part.h"
#include "layers/model_plan.h"
#include "layers/output_head.h"
#include "layers/parameter_store.h"
#include "pipeline/options/recompute_run.h"
#include "pipeline/stage/batch_slots.h"
#include "pipeline/stage/graph_cache.h"
#include "runtime/arena.h"
#include "runtime/tensor.h"
#include "runtime/trace.h"

namespace hadal {

// A fixed number of bytes for each of `slots` micro-batches; micro-batch m uses slot m mod slots. Thread safety of this
// class and the next two: read-only after Bind; only the chunk that is computing accesses the memory.
class SlotMemory {
 public:
  SlotMemory() = default;  // none
  SlotMemory(int64_t bytes, int32_t slots, const std::string& category, ArenaLayout& layout)
      : slots_(slots), slot_bytes_(ArenaLayout::Aligned(bytes)) {
    slice_ = layout.ReserveBytes(category, slot_bytes_ * slots);
  }
  void Bind(const Arena& arena) {
    if (slot_bytes_ > 0) data_ = arena.Get<std::byte>(slice_);
  }
  // Returns the address for `batch`; null if no memory is reserved.
  std::byte* At(const PackedBatch& batch) const {
    return data_ == nullptr ? nullptr : data_ + batch.micro_batch % slots_ * slot_bytes_;
  }

 private:
  int32_t slots_ = 1;
  int64_t slot_bytes_ = 0;
  ArenaSlice slice_;
  std::byte* data_ = nullptr;
};

// Shape and type of a micro-batch's tensor: `entries` matrices [rows of the stack, d], stacked by rows.
struct TensorType {
  Stack rows = Stack::kEncoder;
  int64_t entries = 1;
  Storage storage = Storage::kFloat32;
};

// The memory of one tensor of each live micro-batch.
class TensorMemory {
 public:
  TensorMemory() = default;  // none
  TensorMemory(const TensorType& type, const ModelPlan& plan, const ActivationCapacity& capacity, int32_t slots,
               const std::string& category, ArenaLayout& layout)
      : type_(type),
        width_(plan.options.d_model),
        memory_(type.entries * capacity.rows(type.rows) * width_ * BytesOf(type.storage), slots, category, layout) {}
  void Bind(const Arena& arena) { memory_.Bind(arena); }

  const TensorType& type() const { return type_; }
  // Returns entries [first, first + entries) as [entries · rows, d]; empty if no memory is reserved.
  AnyMatrix View(const PackedBatch& batch, int64_t first, int64_t entries) const {
    std::byte* const data = memory_.At(batch);
    if (data == nullptr) return {};
    HADAL_CHECK_LE(first + entries, type_.entries);
    const int64_t rows = type_.rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows();
    return {data + first * rows * width_ * BytesOf(type_.storage), entries * rows, width_, type_.storage};
  }

 private:
  TensorType type_;
  int64_t width_ = 0;
  SlotMemory memory_;
};

// Memory shared by all chunks of a rank, of which only one computes at a time. The tensors of pending weight halves
// have slots, also shared by all chunks (schedule_check.h's peak_pending says how many are needed).
class SharedActivations {
 public:
  // Reserves the gradients; for inference, none.
  SharedActivations(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose, ArenaLayout& layout);
  // Declare the bytes that a chunk needs, in the order below: for the recomputed tensors that exist at one time and
  // that weight halves also read; for the others, which only input halves read; for the pending tensors that exist at
  // one time in a whole backward; for the pending tensors of one weight half. The maximum of all calls is reserved.
  void RequireSaved(int64_t bytes) { saved_bytes_ = std::max(saved_bytes_, ArenaLayout::Aligned(bytes)); }
  void RequireSavedInput(int64_t bytes) { saved_input_bytes_ = std::max(saved_input_bytes_, bytes); }
  void RequirePendingSteps(int64_t bytes) { step_bytes_ = std::max(step_bytes_, bytes); }
  void RequirePendingHalf(int64_t bytes) { half_bytes_ = std::max(half_bytes_, ArenaLayout::Aligned(bytes)); }
  // Must be called once, after all calls above. A whole backward uses the memory of weight halves: none is pending
  // then.
  void ReserveRequired(int32_t pending_slots, ArenaLayout& layout);
  void Bind(const Arena& arena);

  std::byte* saved() const { return saved_; }
  std::byte* saved_input() const { return saved_ == nullptr ? nullptr : saved_ + saved_bytes_; }
  std::byte* pending(int32_t slot) const { return pending_ == nullptr ? nullptr : pending_ + slot * half_bytes_; }
  // Returns memory for the unused output of a recomputation.
  AnyMatrix discard(int64_t rows, Storage storage) const { return {discard_, rows, width_, storage}; }
  // Returns the gradient of a stack's residual stream.
  const TensorMemory& gradient(Stack stack) const { return gradients_[static_cast<size_t>(stack)]; }
  // Returns the fp32 gradient of a stack's second stream, if it has one.
  const TensorMemory& second_gradient(Stack stack) const { return second_gradients_[static_cast<size_t>(stack)]; }
  // Returns the fp32 gradient of the encoder's output. Equal to gradient(kEncoder) if the encoder's residual stream is
  // fp32.
  const TensorMemory& encoder_output_gradient() const { return encoder_output_gradient_; }

 private:
  Purpose purpose_;
  int64_t width_, saved_bytes_ = 0, saved_input_bytes_ = 0, step_bytes_ = 0, half_bytes_ = 0;
  TensorMemory gradients_[2], second_gradients_[2], encoder_output_gradient_;  // [stacks]
  ArenaSlice discard_slice_, saved_slice_, pending_slice_;
  std::byte *discard_ = nullptr, *saved_ = nullptr, *pending_ = nullptr;
};

class Chunk;

struct ChunkSpec {
  int32_t first = 0, last = 0;  // sublayers [first, last) of the plan
  int32_t slots = 1;            // live micro-batches
  // For backwards in two halves. input_slots: slots for tensors that only input halves read, a divisor of `slots`, at
  // least peak_input of schedule_check.h. pending_slots: peak_pending of it; 0: all backwards are whole.
  int32_t input_slots = 1, pending_slots = 0;
  std::span<const RecomputeRun> recompute;  // must outlive the chunk
  Purpose purpose = Purpose::kTraining;
  bool on_device = false;         // kernels run on a device
  bool graphs = false;            // the device launches graphs
  bool forks = false;             // gradients of weights have a queue of their own (Workspace); on a device
  int replicas = 1;               // of the stage
  bool inputs_on_device = false;  // input edges arrive in device memory
  // Of the histories in front of the chunk and behind it: the entries that do not cross the border, because the rank
  // behind it has them (EdgesInFrontOf). This chunk's come from `before`, the rank's chunk before, whose slot of a
  // micro-batch keeps them until this chunk's forward.
  int64_t known_inputs = 0, known_outputs = 0;
  const Chunk* before = nullptr;  // set if known_inputs > 0; must outlive the chunk
};

// What a backward also does; each pointer may be null.
struct BackwardHooks {
  TraceBuffer* trace = nullptr;         // receives an event for each recomputation (on a device only for its profiler)
  double* recompute_seconds = nullptr;  // the time of recomputations is added to it, on the CPU only
  // Called in descending order of `first`, when this micro-batch has completed the gradients of the chunk's sublayers ≥
  // first.
  const std::function<void(int32_t first)>* complete = nullptr;
};

// A micro-batch whose input half has run in a slot of pending tensors.
struct PendingHalf {
  SublayerContext context;
  int32_t slot = 0;
};

class Chunk {
 public:
  // `plan` and `shared` must outlive the chunk.
  Chunk(const ModelPlan& plan, const ChunkSpec& spec, const ActivationCapacity& capacity, SharedActivations& shared,
        ArenaLayout& layout);
  void Bind(const Arena& arena);

  const ChunkSpec& spec() const { return spec_; }
  // Return the edges of the borders before and after this chunk; empty at the ends of the model.
  const std::vector<Edge>& input_edges() const { return input_edges_; }
  const std::vector<Edge>& output_edges() const { return output_edges_; }

  // Copies a micro-batch to its slot on the device; does nothing on the CPU.  REQUIRES: the host has waited for the end
  // of the slot's previous copy, and all calls for the slot's previous micro-batch have returned.
  void Load(const SublayerContext& context);
  // Computes the forward of a micro-batch. `inputs`: one matrix per input edge.  REQUIRES: it is loaded.
  void Forward(SublayerContext& context, std::span<const ConstAnyMatrix> inputs);
  // The head, which has the losses of the last Forward; null if another chunk has it.
  const OutputHead* head() const { return head_; }
  // Computes the backward of the micro-batch that last ran forward in its slot. `output_gradients`: one an output edge.
  void Backward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients,
                const BackwardHooks& hooks = {});
  // The input half of a backward: computes the gradients of the input edges and keeps the pending tensors in `slot`.
  // REQUIRES: pending_slots > 0; no other weight half is pending in `slot`, and with recomputation none on the rank.
  void BackwardInput(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, int32_t slot,
                     const BackwardHooks& hooks = {});
  // The weight halves of consecutive micro-batches whose input halves have run.
  void BackwardWeight(std::span<PendingHalf> halves, const BackwardHooks& hooks = {});

  // Returns the graphs that the chunk launches, or null.
  const GraphCache* graphs() const { return graphs_.get(); }
  // Sets whether following calls launch graphs (the default), or each kernel by itself.
  void UseGraphs(bool use) { uses_graphs_ = use; }

  // Return the results of Forward for an output edge, and of Backward for an input edge.
  AnyMatrix output(size_t edge, const PackedBatch& batch) const {
    return Values(Crossing(outputs_[edge], edge, spec_.known_outputs), batch);
  }
  AnyMatrix input_gradient(size_t edge, const PackedBatch& batch) const {
    return input_gradients_[edge].View(batch, 0, inputs_[edge].entries);
  }

 private:
  // The steps of three encoder layers (of 2 sublayers) or two decoder layers (of 3).
  static constexpr int32_t kDeviceSteps = 6;

  struct Tensor {
    TensorType type;
    bool is_history = false, is_second = false;
    // Indices of parts; -1: the border before the chunk; the number of parts: the border after it. For a history, the
    // first writer.
    int32_t writer = -1, last_reader = -1;
    bool read_in_backward = false;  // by any reader
    TensorMemory values, gradient;
  };
  // Entries of a tensor. Tensor −1: none.
  struct TensorRange {
    int32_t tensor = -1;
    int64_t first = 0, entries = 1;
  };
  struct PlacedPart {
    std::unique_ptr<ChunkPart> part;
    int32_t first_sublayer = 0;
    TensorRange x, y, second, open;
    bool reads_encoder_output = false;
    bool rereads_x = true, rereads_second = false;  // whether backward reads them
    bool recomputed = false;                        // `saved` is shared and recomputed before the backward
    SlotMemory saved, saved_input;
    // Byte offsets: of `saved` in the shared memory, if recomputed and kept for a weight half; of each step's pending
    // tensors in a whole backward, which reuses memory, and in one of two halves.
    int64_t saved_at = 0;
    std::vector<int64_t> whole_at, pending_at;  // [steps]
  };

  // Layout (chunk_layout.cc). AddStack returns the residual stream after the stack's parts; AddSegments continues `x`.
  TensorRange AddStack(Stack stack, const ActivationCapacity& capacity, ArenaLayout& layout);
  TensorRange AddSegments(int32_t first, int32_t last, TensorRange x, const ActivationCapacity& capacity);
  void AddHead(const TensorRange& x, const ActivationCapacity& capacity, ArenaLayout& layout);
  TensorRange AddTensor(const TensorType& type);
  // Adds the stack's second stream, if it has one and has sublayers here, or the open sum that arrives.
  void AddSecondStream(Stack stack);
  void FindWritersAndReaders();
  void PlaceTensors(const ActivationCapacity& capacity, ArenaLayout& layout);
  void PlaceParts(SharedActivations& shared, ArenaLayout& layout);

  AnyMatrix Values(const TensorRange& range, const PackedBatch& batch) const {
    return range.tensor < 0 ? AnyMatrix() : tensors_[range.tensor].values.View(batch, range.first, range.entries);
  }
  AnyMatrix Gradient(const TensorRange& range, const PackedBatch& batch) const {
    return range.tensor < 0 ? AnyMatrix() : tensors_[range.tensor].gradient.View(batch, range.first, range.entries);
  }
  // The part of a border's tensor that crosses it forward. A history is the first edge.
  static TensorRange Crossing(TensorRange range, size_t edge, int64_t known) {
    if (edge == 0) range.first += known, range.entries -= known;
    return range;
  }
  // The first entries of the history behind the chunk.
  ConstAnyMatrix History(const PackedBatch& batch, int64_t entries) const;
  std::byte* SavedInput(const PlacedPart& placed, const PackedBatch& batch) const;
  PartTensors TensorsOf(const PlacedPart& placed, const PackedBatch& batch) const;
  // Runs `work`; on a device, as a graph if possible.
  using Work = absl::FunctionRef<void(const SublayerContext&, const BackwardHooks&)>;
  struct Phase {
    GraphPhase phase = GraphPhase::kForward;
    int32_t pending_slot = 0;
  };
  void RunPhase(const SublayerContext& context, const Phase& phase, const BackwardHooks& hooks, Work work);
  void RunBackward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, const Phase& phase,
                   const BackwardHooks& hooks);
  void ForwardParts(const SublayerContext& context) const;
  // Runs both halves, or the input half in `phase`.
  void BackwardParts(const SublayerContext& context, const Phase& phase, const BackwardHooks& hooks) const;
  void WeightParts(std::span<const PendingHalf> halves, const BackwardHooks& hooks) const;
  // Clears the gradients to which part `reader` is the first to add.
  void ClearGradients(const SublayerContext& context, size_t reader) const;
  // Returns the gradient of the part's y in its stack's type: in place, or rounded into the stack's residual gradient.
  AnyMatrix OutputGradient(const SublayerContext& context, const PlacedPart& placed) const;
  void Recompute(const SublayerContext& context, const PlacedPart& placed, const PartTensors& tensors,
                 const BackwardHooks& hooks) const;

  const ModelPlan& plan_;
  ChunkSpec spec_;
  const SharedActivations& shared_;
  const int32_t steps_together_;  // of a whole backward: steps whose pending tensors have a place each
  int64_t other_place_ = 0;       // byte offset of the next such steps' pending tensors; 0: the same memory
  std::vector<Edge> input_edges_, output_edges_;
  std::vector<Tensor> tensors_;
  std::vector<PlacedPart> parts_;
  const OutputHead* head_ = nullptr;           // among the parts, or null
  TensorRange encoder_output_;                 // tensor −1: not used here
  TensorRange second_streams_[2];              // [stacks]; of a stack that reads blocks the last open sum; −1: none
  std::vector<TensorRange> inputs_, outputs_;  // [edges]
  std::vector<TensorMemory> input_gradients_;  // [input edges]
  std::optional<BatchSlots> batches_;          // on a device
  std::unique_ptr<GraphCache> graphs_;         // on a device, or null
  bool uses_graphs_ = true;
};

}  // namespace hadal
