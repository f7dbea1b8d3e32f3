#include "pipeline/stage/chunk.h"

#include <algorithm>
#include <thread>

#include "kernels/convert.h"
#include "runtime/check.h"
#include "runtime/clock.h"

namespace hadal {
namespace {

void CheckAlike(const ConstAnyMatrix& from, const ConstAnyMatrix& to) {
  HADAL_CHECK(from.storage == to.storage);
  HADAL_CHECK_EQ(from.rows, to.rows);
  HADAL_CHECK_EQ(from.columns, to.columns);
}

void Copy(const Stream& stream, const ConstAnyMatrix& from, const AnyMatrix& to) {
  CheckAlike(from, to);
  stream.Copy(to.data, from.data, from.bytes());
}

// `from`: a border's edge as it has come.
void CopyInput(const Stream& stream, bool on_device, const ConstAnyMatrix& from, const AnyMatrix& to) {
  CheckAlike(from, to);
  on_device ? stream.Copy(to.data, from.data, from.bytes()) : stream.FromHost(to.data, from.data, from.bytes());
}

// Until the device is done, so that times are the work's; transfers go on meanwhile.
void WaitForDevice(const SublayerContext& context) {
  Device* const device = context.stream.device();
  if (device == nullptr) return;
  while (!device->Idle()) {
    context.Progress();
    std::this_thread::yield();
  }
  device->Synchronize();
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

void Chunk::LoadInputs(const SublayerContext& context, std::span<const ConstAnyMatrix> inputs) {
  HADAL_CHECK_EQ(inputs.size(), input_edges_.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Piece& first = pieces_.front();
    AnyMatrix place = EncoderOutputView(context.batch);  // also where the cut lies right before the target embedding
    if (input_edges_[i].kind != EdgeKind::kEncoderOutput) {
      if (first.kind == Piece::Kind::kSegment) place = InputOf(first, context.batch);
      if (first.kind == Piece::Kind::kHead) place = HeadInput(context.batch);
    }
    CopyInput(context.stream, spec_.inputs_on_device, inputs[i], place);
  }
}

void Chunk::RunPhase(SublayerContext& context, GraphPhase phase, const std::function<void(SublayerContext&)>& work) {
  const bool watched = context.observer != nullptr || context.profile != nullptr;
  if (graphs_ == nullptr || !uses_graphs_ || watched) return work(context);
  const GraphKey key{
      .phase = phase, .slot = context.batch.micro_batch % spec_.slots, .shape = batches_->ShapeOf(context.batch)};
  const auto launch = [&](const GraphCache::Cut* recording) {
    if (recording == nullptr) return work(context);
    SublayerContext recorded = context;  // transfers wait until the graph is launched
    recorded.progress = nullptr;
    recorded.trace = nullptr;
    context.complete == nullptr ? work(recorded) : RecordInParts(recorded, *recording, work);
  };
  graphs_->Run(*context.stream.device(), key, launch, [&context](int32_t first) {
    context.MarkComplete(first);
    context.Progress();
  });
}

void Chunk::RecordInParts(SublayerContext& context, const GraphCache::Cut& cut,
                          const std::function<void(SublayerContext&)>& work) const {
  const int32_t sublayers = spec_.last - spec_.first;
  const int32_t of_a_part = (sublayers + GraphCache::kMostParts - 1) / GraphCache::kMostParts;
  int32_t cut_at = spec_.last;
  const std::function<void(int32_t)> complete = [&](int32_t first) {
    if (cut_at - first < of_a_part || first == spec_.first) return;
    cut_at = first;
    cut(first);
  };
  context.complete = &complete;
  work(context);
}

LossSums Chunk::Forward(SublayerContext& context, std::span<const ConstAnyMatrix> inputs, Vector row_nll,
                        StageTimes& times) {
  const ScopedTimer timer(times.forward_seconds);
  if (batches_) context.places = &batches_->Fill(context);
  LoadInputs(context, inputs);
  context.encoder_output = EncoderOutputView(context.batch);
  RunPhase(context, context.scalars.training ? GraphPhase::kForward : GraphPhase::kEvaluation,
           [this](SublayerContext& c) { ForwardPieces(c); });
  WaitForDevice(context);
  const Piece& last = pieces_.back();
  return last.head ? last.head->Losses(context, row_nll) : LossSums();
}

void Chunk::ForwardPieces(SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    switch (piece.kind) {
      case Piece::Kind::kEmbedding:
        piece.embedding->Forward(context, OutputOf(i, batch));
        break;
      case Piece::Kind::kSegment:
        piece.segment->Forward(context, InputOf(piece, batch), SavedOf(piece, batch), OutputOf(i, batch));
        break;
      case Piece::Kind::kCombination:
        piece.combination->Forward(context.stream, context.parameters, InputOf(piece, batch), SavedOf(piece, batch),
                                   OutputOf(i, batch));
        break;
      case Piece::Kind::kHead:
        context.Observe(
            {.tensor = DepthTensor::kModelOutput, .sublayer = plan_.output_head(), .values = HeadInput(batch)});
        piece.head->Forward(context, HeadInput(batch), head_gradient_ ? SlotView(*head_gradient_, batch) : AnyMatrix());
        break;
    }
    context.Progress();
  }
  CopyEncoderOutput(context);
}

void Chunk::CopyEncoderOutput(const SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (size_t i = 0; i < output_edges_.size(); ++i) {
    if (output_edges_[i].kind == EdgeKind::kEncoderOutput)
      Copy(context.stream, EncoderOutputView(batch), output(i, batch));
  }
}

void Chunk::BackwardSegment(SublayerContext& context, const Piece& piece, AnyMatrix d_residual, StageTimes& times) {
  const AnyMatrix x = InputOf(piece, context.batch);
  std::byte* saved = SavedOf(piece, context.batch);
  if (spec_.recompute_every > 0) {
    const ScopedTimer timer(times.recompute_seconds);
    const TraceScope scope(context.trace, {.kind = TraceKind::kRecompute, .micro_batch = context.batch.micro_batch});
    SublayerContext unobserved = context;
    unobserved.observer = nullptr;
    piece.segment->Forward(unobserved, x, saved, shared_.discard(d_residual.rows, piece.segment->output_storage()));
  }
  const ScopedTimer timer(times.backward_seconds);
  piece.segment->Backward(context, x, saved, d_residual, HistoryGradientOf(piece, context.batch));
}

// The first reader, going back, of all entries.
void Chunk::BackwardCombination(SublayerContext& context, const Piece& piece, AnyMatrix d_residual, StageTimes& times) {
  const ScopedTimer timer(times.backward_seconds);
  const Matrix d_history = HistoryGradientOf(piece, context.batch);
  context.stream.Clear(d_history.data, AnyMatrix(d_history).bytes());
  piece.combination->Backward(context, InputOf(piece, context.batch), SavedOf(piece, context.batch), d_residual,
                              d_history);
}

void Chunk::LoadOutputGradients(const Stream& stream, std::span<const ConstAnyMatrix> output_gradients,
                                const PackedBatch& batch) {
  HADAL_CHECK_EQ(output_gradients.size(), output_edges_.size());
  for (size_t i = 0; i < output_gradients.size(); ++i) {
    const AnyMatrix to = i == 0 && ends_in_history_
                             ? HistoryOf(pieces_.back()).Gradient(batch, output_edges_[0].entries)
                             : EdgeGradient(output_edges_[i], spec_.last, output_gradients[i].rows);
    CopyInput(stream, spec_.inputs_on_device, output_gradients[i], to);
  }
}

void Chunk::Backward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, StageTimes& times) {
  const Stopwatch watch;
  const PackedBatch& batch = context.batch;
  if (batches_) context.places = &batches_->Of(batch);
  // The encoder output's gradient, which the decoder's readers add to first, is the encoder's incoming gradient: one
  // buffer, or, where the encoder's residual stream is not fp32, rounded into the other.
  const Matrix d_encoder_output = shared_.encoder_output_gradient(batch.source_rows());
  if (encoder_output_) context.stream.Clear(d_encoder_output.data, AnyMatrix(d_encoder_output).bytes());
  LoadOutputGradients(context.stream, output_gradients, batch);
  context.encoder_output = EncoderOutputView(batch);
  context.d_encoder_output = d_encoder_output;
  StageTimes parts;
  const GraphPhase phase = context.complete == nullptr ? GraphPhase::kBackward : GraphPhase::kLastBackward;
  RunPhase(context, phase, [&](SublayerContext& c) { BackwardPieces(c, parts); });
  WaitForDevice(context);
  times.recompute_seconds += parts.recompute_seconds;
  // A device's work is known when it has been waited for.
  times.backward_seconds +=
      context.stream.device() != nullptr ? watch.Seconds() - parts.recompute_seconds : parts.backward_seconds;
}

void Chunk::BackwardPieces(SublayerContext& context, StageTimes& times) {
  const PackedBatch& batch = context.batch;
  for (size_t i = pieces_.size(); i-- > 0;) {
    const Piece& piece = pieces_[i];
    const AnyMatrix d_residual = OutputGradientOf(i, batch);
    if (MakesEncoderOutput(i) && shared_.encoder_output_apart())
      Convert(context.stream, {.from = context.d_encoder_output, .to = d_residual});
    if (EntryOf(i) >= 0 && d_residual.storage != Storage::kFloat32) {
      Convert(context.stream, {.from = EntryGradient(i, batch), .to = d_residual});
    }
    switch (piece.kind) {
      case Piece::Kind::kHead:
        Copy(context.stream, SlotView(*head_gradient_, batch), d_residual);
        break;
      case Piece::Kind::kCombination:
        BackwardCombination(context, piece, d_residual, times);
        break;
      case Piece::Kind::kSegment:
        BackwardSegment(context, piece, d_residual, times);
        break;
      case Piece::Kind::kEmbedding: {
        const ScopedTimer timer(times.backward_seconds);
        piece.embedding->Backward(context, d_residual);
        break;
      }
    }
    context.Progress();
  }
  StoreInputGradients(context);
}

void Chunk::StoreInputGradients(const SublayerContext& context) {
  const PackedBatch& batch = context.batch;
  for (size_t i = starts_in_history_ ? 1 : 0; i < input_edges_.size(); ++i) {
    const AnyMatrix to = input_gradient(i, batch);
    Copy(context.stream, EdgeGradient(input_edges_[i], spec_.first, to.rows), to);
  }
}

}  // namespace hadal
