#include "pipeline/chunk.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

int64_t BytesOf(ConstMatrix m) { return m.rows * m.columns * int64_t{sizeof(float)}; }

void CheckAlike(ConstMatrix from, ConstMatrix to) {
  HADAL_CHECK_EQ(from.rows, to.rows);
  HADAL_CHECK_EQ(from.columns, to.columns);
}

void Copy(const Stream& stream, ConstMatrix from, Matrix to) {
  CheckAlike(from, to);
  stream.Copy(to.data, from.data, BytesOf(from));
}

// `from`: a border's edge as it has come, in the host's memory.
void CopyFromHost(const Stream& stream, ConstMatrix from, Matrix to) {
  CheckAlike(from, to);
  stream.FromHost(to.data, from.data, BytesOf(from));
}

// Adds the time of its scope to `seconds`.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& seconds) : seconds_(seconds) {}
  ~ScopedTimer() { seconds_ += watch_.Seconds(); }

 private:
  double& seconds_;
  Stopwatch watch_;
};

}  // namespace

void SharedActivations::Reserve(const ModelPlan& plan, const ActivationCapacity& capacity, bool training,
                                ArenaLayout& layout) {
  width_ = plan.options.d_model;
  saved_slice_ = layout.Reserve<float>("activations", saved_floats_);
  if (!training) return;
  discard_slice_ = layout.Reserve<float>("workspace", std::max(capacity.source_rows, capacity.target_rows) * width_);
  source_slice_ = layout.Reserve<float>("workspace", capacity.source_rows * width_);
  target_slice_ = layout.Reserve<float>("workspace", capacity.target_rows * width_);
}

void SharedActivations::Bind(const Arena& arena) {
  saved_ = arena.Get<float>(saved_slice_);
  discard_ = arena.Get<float>(discard_slice_);
  source_gradient_ = arena.Get<float>(source_slice_);
  target_gradient_ = arena.Get<float>(target_slice_);
}

Chunk::Chunk(const ModelPlan& plan, const ChunkSpec& spec, const ActivationCapacity& capacity,
             SharedActivations& shared, ArenaLayout& layout)
    : plan_(plan), spec_(spec), d_model_(plan.options.d_model), shared_(shared) {
  HADAL_CHECK_LT(spec.first, spec.last);
  const int32_t sublayers = static_cast<int32_t>(plan.sublayers.size());
  if (spec.first > 0) input_edges_ = BorderEdges(plan, spec.first);
  if (spec.last < sublayers) output_edges_ = BorderEdges(plan, spec.last);
  AddPieces(capacity, shared, layout);
  slots_slice_ = layout.Reserve<float>("activations", slot_floats_ * spec.slots);
  const auto reserve = [&](const Edge& edge) {
    return layout.Reserve<float>("borders", capacity.rows(edge.rows) * d_model_);
  };
  for (const Edge& edge : output_edges_) output_slices_.push_back(reserve(edge));
  if (!spec.training) return;
  for (const Edge& edge : input_edges_) input_gradient_slices_.push_back(reserve(edge));
}

int64_t Chunk::ReserveInSlot(int64_t floats) {
  const int64_t offset = slot_floats_;
  constexpr int64_t kAlignmentFloats = ArenaLayout::kAlignmentBytes / static_cast<int64_t>(sizeof(float));
  slot_floats_ += (floats + kAlignmentFloats - 1) / kAlignmentFloats * kAlignmentFloats;
  return offset;
}

void Chunk::AddPieces(const ActivationCapacity& capacity, SharedActivations& shared, ArenaLayout& layout) {
  const int32_t target = plan_.target_embedding();
  const auto add_embedding = [&](int32_t sublayer, Stack stack) {
    Piece& piece = pieces_.emplace_back();
    piece.kind = Piece::Kind::kEmbedding;
    piece.stack = stack;
    piece.embedding.emplace(plan_, sublayer, layout);
  };
  if (spec_.first == plan_.source_embedding()) add_embedding(plan_.source_embedding(), Stack::kEncoder);
  AddSegments(std::max(spec_.first, 1), std::min(spec_.last, target), capacity, shared);
  // The memory is needed by cross-attention here, or by a border behind the target embedding.
  const bool inside_decoder = spec_.last > target;
  const bool received = std::any_of(input_edges_.begin(), input_edges_.end(),
                                    [](const Edge& edge) { return edge.kind == EdgeKind::kMemory; });
  if (plan_.options.has_encoder() && inside_decoder && (spec_.first <= target || received)) {
    memory_ = SlotTensor{Stack::kEncoder, ReserveInSlot(capacity.source_rows * d_model_)};
  }
  if (spec_.first <= target && target < spec_.last) add_embedding(target, Stack::kDecoder);
  AddSegments(std::max(spec_.first, target + 1), std::min(spec_.last, plan_.output_head()), capacity, shared);
  if (spec_.last <= plan_.output_head()) return;
  Piece& head = pieces_.emplace_back();
  head.kind = Piece::Kind::kHead;
  head.stack = Stack::kDecoder;
  head.head.emplace(plan_);
  head_input_slice_ = layout.Reserve<float>("workspace", capacity.target_rows * d_model_);
  if (spec_.training) head_gradient_ = SlotTensor{Stack::kDecoder, ReserveInSlot(capacity.target_rows * d_model_)};
}

void Chunk::AddSegments(int32_t first, int32_t last, const ActivationCapacity& capacity, SharedActivations& shared) {
  const int32_t length = spec_.checkpoint_every > 0 ? spec_.checkpoint_every : std::max(last - first, 1);
  for (int32_t begin = first, end = first; begin < last; begin = end) {
    end = plan_.NextCut(std::min(begin + length, last));
    Piece& piece = pieces_.emplace_back();
    piece.kind = Piece::Kind::kSegment;
    piece.segment = std::make_unique<Segment>(plan_, begin, end, capacity);
    piece.stack = piece.segment->stack();
    piece.input = {piece.stack, ReserveInSlot(capacity.rows(piece.stack) * d_model_)};
    if (spec_.checkpoint_every > 0) {
      shared.Require(piece.segment->saved_floats());
    } else {
      piece.saved_offset = ReserveInSlot(piece.segment->saved_floats());
    }
  }
}

void Chunk::Bind(const Arena& arena) {
  slots_ = arena.Get<float>(slots_slice_);
  head_input_ = arena.Get<float>(head_input_slice_);
  for (const ArenaSlice& slice : output_slices_) outputs_.push_back(arena.Get<float>(slice));
  for (const ArenaSlice& slice : input_gradient_slices_) input_gradients_.push_back(arena.Get<float>(slice));
  for (Piece& piece : pieces_) {
    if (piece.embedding) piece.embedding->Bind(arena);
  }
}

Matrix Chunk::EdgeView(const Edge& edge, float* data, const PackedBatch& batch) const {
  return {data, edge.rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows(), d_model_};
}

Matrix Chunk::SlotView(const SlotTensor& tensor, const PackedBatch& batch) const {
  return {Slot(batch) + tensor.offset, tensor.rows == Stack::kEncoder ? batch.source_rows() : batch.target_rows(),
          d_model_};
}

Matrix Chunk::MemoryView(const PackedBatch& batch) const { return memory_ ? SlotView(*memory_, batch) : Matrix(); }

float* Chunk::SavedOf(const Piece& piece, const PackedBatch& batch) const {
  return piece.saved_offset >= 0 ? Slot(batch) + piece.saved_offset : shared_.saved();
}

Matrix Chunk::OutputOf(size_t index, const PackedBatch& batch) const {
  if (index + 1 == pieces_.size()) return output(0, batch);
  const Piece& next = pieces_[index + 1];
  switch (next.kind) {
    case Piece::Kind::kSegment:
      return SlotView(next.input, batch);
    case Piece::Kind::kEmbedding:
      return MemoryView(batch);
    case Piece::Kind::kHead:
      return {head_input_, batch.target_rows(), d_model_};
  }
  return {};
}

void Chunk::LoadInputs(const SublayerContext& context, std::span<const ConstMatrix> inputs) {
  HADAL_CHECK_EQ(inputs.size(), input_edges_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Piece& first = pieces_.front();
    Matrix place = MemoryView(context.batch);  // also where the cut lies right before the target embedding
    if (input_edges_[i].kind != EdgeKind::kMemory) {
      if (first.kind == Piece::Kind::kSegment) place = SlotView(first.input, context.batch);
      if (first.kind == Piece::Kind::kHead) place = Matrix(head_input_, context.batch.target_rows(), d_model_);
    }
    CopyFromHost(context.stream, inputs[i], place);
  }
}

LossSums Chunk::Forward(SublayerContext& context, std::span<const ConstMatrix> inputs, Vector row_nll,
                        StageTimes& times) {
  const ScopedTimer timer(times.forward_seconds);
  const PackedBatch& batch = context.batch;
  LoadInputs(context, inputs);
  context.memory = MemoryView(batch);
  LossSums sums;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    switch (piece.kind) {
      case Piece::Kind::kEmbedding:
        piece.embedding->Forward(context, OutputOf(i, batch));
        break;
      case Piece::Kind::kSegment:
        piece.segment->Forward(context, SlotView(piece.input, batch), SavedOf(piece, batch), OutputOf(i, batch));
        break;
      case Piece::Kind::kHead:
        context.Observe({.tensor = DepthTensor::kModelOutput,
                         .sublayer = plan_.output_head(),
                         .values = ConstMatrix(head_input_, batch.target_rows(), d_model_)});
        sums = piece.head->Forward(context, ConstMatrix(head_input_, batch.target_rows(), d_model_),
                                   head_gradient_ ? SlotView(*head_gradient_, batch) : Matrix(), row_nll);
        break;
    }
    context.Progress();
  }
  CopyMemoryOut(context);
  context.stream.Synchronize();  // so that times are the work's
  return sums;
}

void Chunk::CopyMemoryOut(const SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (size_t i = 0; i < output_edges_.size(); ++i) {
    if (output_edges_[i].kind == EdgeKind::kMemory) Copy(context.stream, MemoryView(batch), output(i, batch));
  }
}

void Chunk::BackwardSegment(SublayerContext& context, const Piece& piece, Matrix d_stream, StageTimes& times) {
  const Matrix x = SlotView(piece.input, context.batch);
  float* saved = SavedOf(piece, context.batch);
  if (spec_.checkpoint_every > 0) {
    const ScopedTimer timer(times.recompute_seconds);
    const TraceScope scope(context.trace, {.kind = TraceKind::kRecompute, .micro_batch = context.batch.micro_batch});
    SublayerContext unobserved = context;
    unobserved.observer = nullptr;
    piece.segment->Forward(unobserved, x, saved, shared_.discard(x.rows));
  }
  const ScopedTimer timer(times.backward_seconds);
  piece.segment->Backward(context, x, saved, d_stream);
}

void Chunk::Backward(SublayerContext& context, std::span<const ConstMatrix> output_gradients, StageTimes& times) {
  const PackedBatch& batch = context.batch;
  HADAL_CHECK_EQ(output_gradients.size(), output_edges_.size());
  Matrix d_source = shared_.gradient(Stack::kEncoder, batch.source_rows());
  Matrix d_target = shared_.gradient(Stack::kDecoder, batch.target_rows());
  // The memory's gradient is the encoder's incoming gradient: one buffer, which the decoder's readers add to first.
  if (memory_) context.stream.Clear(d_source.data, BytesOf(d_source));
  for (size_t i = 0; i < output_gradients.size(); ++i) {
    CopyFromHost(context.stream, output_gradients[i], output_edges_[i].rows == Stack::kEncoder ? d_source : d_target);
  }
  context.memory = MemoryView(batch);
  context.d_memory = d_source;
  for (size_t i = pieces_.size(); i-- > 0;) {
    const Piece& piece = pieces_[i];
    const Matrix d_stream = piece.stack == Stack::kEncoder ? d_source : d_target;
    switch (piece.kind) {
      case Piece::Kind::kHead:
        Copy(context.stream, SlotView(*head_gradient_, batch), d_target);
        break;
      case Piece::Kind::kSegment:
        BackwardSegment(context, piece, d_stream, times);
        break;
      case Piece::Kind::kEmbedding: {
        const ScopedTimer timer(times.backward_seconds);
        piece.embedding->Backward(context, d_stream);
        break;
      }
    }
    context.Progress();
  }
  StoreInputGradients(context);
  context.stream.Synchronize();
}

void Chunk::StoreInputGradients(const SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (size_t i = 0; i < input_edges_.size(); ++i) {
    const Matrix to = input_gradient(i, batch);
    Copy(context.stream, shared_.gradient(input_edges_[i].rows, to.rows), to);
  }
}

}  // namespace hadal
