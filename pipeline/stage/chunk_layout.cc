// A chunk's pieces and where their tensors lie; chunk.cc runs them.
#include <algorithm>

#include "layers/purpose.h"
#include "pipeline/stage/chunk.h"
#include "runtime/check.h"

namespace hadal {
namespace {

// The last of `entries` matrices on top of each other.
AnyMatrix LastEntry(const AnyMatrix& history, int64_t entries) {
  const int64_t rows = history.rows / entries;
  return history.Rows(history.rows - rows, rows);
}

}  // namespace

Chunk::Chunk(const ModelPlan& plan, const ChunkSpec& spec, const ActivationCapacity& capacity,
             SharedActivations& shared, ArenaLayout& layout)
    : plan_(plan), spec_(spec), d_model_(plan.options.d_model), shared_(shared) {
  HADAL_CHECK_LT(spec.first, spec.last);
  const int32_t sublayers = static_cast<int32_t>(plan.sublayers.size());
  if (spec.first > 0) input_edges_ = BorderEdges(plan, spec.first);
  if (spec.last < sublayers) output_edges_ = BorderEdges(plan, spec.last);
  AddPieces(capacity, shared, layout);
  slots_slice_ = layout.ReserveBytes("activations", slot_bytes_ * spec.slots);
  if (spec.on_device) {
    batches_.emplace(BatchSlots::Spec{.first_sublayer = spec.first,
                                      .sublayers = spec.last - spec.first,
                                      .slots = spec.slots,
                                      .capacity = capacity},
                     layout);
    if (spec.graphs) graphs_ = std::make_unique<GraphCache>(MostGraphs(spec.slots, spec.replicas));
  }
  const auto reserve = [&](const Edge& edge, Storage storage, bool in_history) {
    const bool has_place = in_history && edge.kind == EdgeKind::kResidual;
    return layout.ReserveBytes("borders", has_place ? 0 : capacity.rows(edge.rows) * d_model_ * BytesOf(storage));
  };
  starts_in_history_ = !input_edges_.empty() && pieces_.front().history_entries > 0;
  ends_in_history_ = !output_edges_.empty() && EntryOf(pieces_.size() - 1) >= 0;
  for (const Edge& edge : output_edges_) output_slices_.push_back(reserve(edge, edge.values, ends_in_history_));
  if (spec.purpose == Purpose::kInference) return;
  for (const Edge& edge : input_edges_) {
    input_gradient_slices_.push_back(reserve(edge, edge.gradient, starts_in_history_));
  }
}

int64_t Chunk::ReserveInSlot(int64_t bytes) {
  const int64_t offset = slot_bytes_;
  slot_bytes_ += ArenaLayout::Aligned(bytes);
  return offset;
}

Chunk::SlotTensor Chunk::ReserveInSlot(Stack rows, Storage storage, const ActivationCapacity& capacity) {
  return {rows, storage, ReserveInSlot(capacity.rows(rows) * d_model_ * BytesOf(storage))};
}

void Chunk::AddPieces(const ActivationCapacity& capacity, SharedActivations& shared, ArenaLayout& layout) {
  const int32_t target = plan_.target_embedding();
  const auto add_embedding = [&](int32_t sublayer, Stack stack) {
    Piece& piece = pieces_.emplace_back();
    piece.kind = Piece::Kind::kEmbedding;
    piece.stack = stack;
    piece.embedding = MakeFrontEnd(plan_, sublayer, layout);
  };
  if (spec_.first == plan_.source_embedding()) add_embedding(plan_.source_embedding(), Stack::kEncoder);
  AddHistory(std::max(spec_.first, 1), std::min(spec_.last, target), capacity, layout);
  AddSegments(std::max(spec_.first, 1), std::min(spec_.last, target), capacity, shared);
  // The encoder's output is needed by cross-attention here, or by a border behind the target embedding.
  const bool inside_decoder = spec_.last > target;
  const bool received = std::any_of(input_edges_.begin(), input_edges_.end(),
                                    [](const Edge& edge) { return edge.kind == EdgeKind::kEncoderOutput; });
  if (plan_.options.has_encoder() && inside_decoder && (spec_.first <= target || received)) {
    encoder_output_ = ReserveInSlot(Stack::kEncoder, plan_.compute_storage, capacity);
  }
  if (spec_.first <= target && target < spec_.last) add_embedding(target, Stack::kDecoder);
  AddHistory(std::max(spec_.first, target + 1), std::min(spec_.last, plan_.output_head()), capacity, layout);
  AddSegments(std::max(spec_.first, target + 1), std::min(spec_.last, plan_.output_head()), capacity, shared);
  if (spec_.last <= plan_.output_head()) return;
  Piece& head = pieces_.emplace_back();
  head.kind = Piece::Kind::kHead;
  head.stack = Stack::kDecoder;
  head.head = MakeLossHead(plan_);
  head_input_slice_ =
      layout.ReserveBytes("workspace", capacity.target_rows * d_model_ * BytesOf(plan_.compute_storage));
  if (spec_.purpose == Purpose::kTraining) {
    head_gradient_ = ReserveInSlot(Stack::kDecoder, plan_.residual_storage(Stack::kDecoder), capacity);
  }
}

void Chunk::AddHistory(int32_t first, int32_t last, const ActivationCapacity& capacity, ArenaLayout& layout) {
  // Where the stack's embedding ends the chunk there is no layer, but its output is the history's first entry.
  const bool only_embedding = first == last && spec_.last == last && first > spec_.first;
  if (first > last || (first == last && !only_embedding)) return;
  const Stack stack = plan_.sublayers[first].stack;
  if (!plan_.Combines(stack)) return;
  // y_0 and one a layer.
  histories_[static_cast<size_t>(stack)].emplace(
      LayerHistory::Spec{.stack = stack,
                         .entries = only_embedding ? 1 : plan_.sublayers[last - 1].layer + 2,
                         .rows = capacity.rows(stack),
                         .width = d_model_,
                         .storage = plan_.residual_storage(stack),
                         .slots = spec_.slots,
                         .purpose = spec_.purpose},
      layout);
}

void Chunk::AddCombination(int32_t last, const ActivationCapacity& capacity) {
  const Stack stack = plan_.sublayers[last - 1].stack;
  Piece& piece = pieces_.emplace_back();
  piece.kind = Piece::Kind::kCombination;
  piece.stack = stack;
  piece.combination.emplace(plan_, last - 1, capacity.rows(stack));
  piece.history_entries = piece.combination->entries();
  piece.saved_offset = ReserveInSlot(piece.combination->saved_bytes());
}

void Chunk::AddSegments(int32_t first, int32_t last, const ActivationCapacity& capacity, SharedActivations& shared) {
  if (first >= last) return;
  const bool combines = plan_.Combines(plan_.sublayers[first].stack);
  // With a history a segment is a layer: its input is kept in any case.
  const int32_t length = combines ? 1 : spec_.recompute_every > 0 ? spec_.recompute_every : last - first;
  for (int32_t begin = first, end = first; begin < last; begin = end) {
    end = plan_.NextCut(std::min(begin + length, last));
    Piece& piece = pieces_.emplace_back();
    piece.kind = Piece::Kind::kSegment;
    piece.segment = std::make_unique<Segment>(plan_, begin, end, capacity);
    piece.stack = piece.segment->stack();
    if (combines) {
      piece.history_entries = piece.segment->entries();
    } else {
      piece.input = ReserveInSlot(piece.stack, plan_.residual_storage(piece.stack), capacity);
    }
    if (spec_.recompute_every > 0) {
      shared.Require(piece.segment->saved_bytes());
    } else {
      piece.saved_offset = ReserveInSlot(piece.segment->saved_bytes());
    }
  }
  if (combines && plan_.ends_stack(last)) AddCombination(last, capacity);
}

void Chunk::Bind(const Arena& arena) {
  slots_ = arena.Get<std::byte>(slots_slice_);
  head_input_ = arena.Get<std::byte>(head_input_slice_);
  for (const ArenaSlice& slice : output_slices_) outputs_.push_back(arena.Get<std::byte>(slice));
  for (const ArenaSlice& slice : input_gradient_slices_) input_gradients_.push_back(arena.Get<std::byte>(slice));
  for (std::optional<LayerHistory>& history : histories_) {
    if (history) history->Bind(arena);
  }
  if (batches_) batches_->Bind(arena);
  for (Piece& piece : pieces_) {
    if (piece.embedding) piece.embedding->Bind(arena);
  }
}

AnyMatrix Chunk::EdgeView(Stack rows, Storage storage, std::byte* data, const PackedBatch& batch) const {
  return {data, rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows(), d_model_, storage};
}

AnyMatrix Chunk::SlotView(const SlotTensor& tensor, const PackedBatch& batch) const {
  return EdgeView(tensor.rows, tensor.storage, Slot(batch) + tensor.offset, batch);
}

AnyMatrix Chunk::EncoderOutputView(const PackedBatch& batch) const {
  return encoder_output_ ? SlotView(*encoder_output_, batch) : AnyMatrix();
}

bool Chunk::MakesEncoderOutput(size_t index) const {
  if (pieces_[index].kind == Piece::Kind::kEmbedding || pieces_[index].stack != Stack::kEncoder) return false;
  if (index + 1 == pieces_.size()) return spec_.last == plan_.target_embedding();
  return pieces_[index + 1].kind == Piece::Kind::kEmbedding;
}

std::byte* Chunk::SavedOf(const Piece& piece, const PackedBatch& batch) const {
  return piece.saved_offset >= 0 ? Slot(batch) + piece.saved_offset : shared_.saved();
}

AnyMatrix Chunk::InputOf(const Piece& piece, const PackedBatch& batch) const {
  return piece.history_entries > 0 ? HistoryOf(piece).Values(batch, piece.history_entries)
                                   : SlotView(piece.input, batch);
}

Matrix Chunk::HistoryGradientOf(const Piece& piece, const PackedBatch& batch) const {
  return piece.history_entries > 0 ? HistoryOf(piece).Gradient(batch, piece.history_entries) : Matrix();
}

int64_t Chunk::EntryOf(size_t index) const {
  const Piece& piece = pieces_[index];
  if (piece.kind == Piece::Kind::kSegment) return piece.history_entries > 0 ? piece.history_entries : -1;
  return piece.kind == Piece::Kind::kEmbedding && histories_[static_cast<size_t>(piece.stack)] ? 0 : -1;
}

AnyMatrix Chunk::OutputOf(size_t index, const PackedBatch& batch) const {
  if (const int64_t entry = EntryOf(index); entry >= 0) {
    const Piece& piece = pieces_[index];
    return LastEntry(HistoryOf(piece).Values(batch, entry + 1), entry + 1);
  }
  if (index + 1 == pieces_.size()) return output(0, batch);
  const Piece& next = pieces_[index + 1];
  switch (next.kind) {
    case Piece::Kind::kSegment:
    case Piece::Kind::kCombination:
      return InputOf(next, batch);
    case Piece::Kind::kEmbedding:
      return EncoderOutputView(batch);
    case Piece::Kind::kHead:
      return HeadInput(batch);
  }
  return {};
}

AnyMatrix Chunk::OutputGradientOf(size_t index, const PackedBatch& batch) const {
  const Piece& piece = pieces_[index];
  if (plan_.residual_storage(piece.stack) == Storage::kFloat32 && EntryOf(index) >= 0)
    return EntryGradient(index, batch);
  return shared_.gradient(piece.stack, piece.stack == Stack::kEncoder ? batch.source_rows() : batch.target_rows());
}

AnyMatrix Chunk::EntryGradient(size_t index, const PackedBatch& batch) const {
  const int64_t entries = EntryOf(index) + 1;
  return LastEntry(HistoryOf(pieces_[index]).Gradient(batch, entries), entries);
}

}  // namespace hadal
