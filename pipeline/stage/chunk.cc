#include "pipeline/stage/chunk.h"

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

// Completes the gradients of weights so far.
void LaunchGradients(const SublayerContext& context) {
  if (context.gradients != nullptr) context.gradients->Launch(context.stream);
}

// Reports gradients as complete once they are launched.
std::function<void(int32_t)> LaunchedFirst(const SublayerContext& context, const BackwardHooks& hooks) {
  return [&context, &hooks](int32_t first) {
    LaunchGradients(context);
    (*hooks.complete)(first);
  };
}

}  // namespace

void Chunk::Load(const SublayerContext& context) {
  if (batches_) batches_->Fill(context);
}

void Chunk::Forward(SublayerContext& context, std::span<const ConstAnyMatrix> inputs) {
  HADAL_CHECK_EQ(inputs.size(), inputs_.size());
  if (batches_) context.device_batch = &batches_->Of(context.batch);
  for (size_t i = 0; i < inputs.size(); ++i) {
    CopyInput(context.stream, spec_.inputs_on_device, inputs[i],
              Values(Crossing(inputs_[i], i, spec_.known_inputs), context.batch));
  }
  if (spec_.known_inputs > 0) {
    Copy(context.stream, spec_.before->History(context.batch, spec_.known_inputs),
         Values(inputs_[0], context.batch).Rows(0, spec_.known_inputs * context.rows(input_edges_[0].rows)));
  }
  RunPhase(context, {context.scalars.training ? GraphPhase::kForward : GraphPhase::kEvaluation}, {},
           [this](const SublayerContext& c, const BackwardHooks&) { ForwardParts(c); });
}

void Chunk::Backward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients,
                     const BackwardHooks& hooks) {
  RunBackward(context, output_gradients,
              {hooks.complete == nullptr ? GraphPhase::kBackward : GraphPhase::kLastBackward}, hooks);
}

void Chunk::BackwardInput(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, int32_t slot,
                          const BackwardHooks& hooks) {
  HADAL_CHECK_LT(slot, spec_.pending_slots);
  HADAL_CHECK(hooks.complete == nullptr);
  RunBackward(context, output_gradients, {GraphPhase::kBackwardInput, slot}, hooks);
}

void Chunk::BackwardWeight(std::span<PendingHalf> halves, const BackwardHooks& hooks) {
  for (PendingHalf& half : halves) {
    if (batches_) half.context.device_batch = &batches_->Of(half.context.batch);
    half.context.gradients = half.context.workspace.gradient_batch();
  }
  if (hooks.complete != nullptr && halves.size() > 1) {
    const std::function<void(int32_t)> complete = LaunchedFirst(halves.back().context, hooks);
    WeightParts(halves, {.complete = &complete});  // a graph is of one micro-batch
  } else {
    for (const PendingHalf& half : halves) {
      const GraphPhase phase =
          hooks.complete == nullptr ? GraphPhase::kBackwardWeight : GraphPhase::kLastBackwardWeight;
      RunPhase(half.context, {phase, half.slot}, hooks, [&](const SublayerContext& c, const BackwardHooks& h) {
        const PendingHalf one{c, half.slot};
        WeightParts({&one, 1}, h);
      });
    }
  }
}

void Chunk::RunBackward(SublayerContext& context, std::span<const ConstAnyMatrix> output_gradients, const Phase& phase,
                        const BackwardHooks& hooks) {
  HADAL_CHECK_EQ(output_gradients.size(), outputs_.size());
  if (batches_) context.device_batch = &batches_->Of(context.batch);
  context.gradients = context.workspace.gradient_batch();
  for (size_t i = 0; i < output_gradients.size(); ++i) {
    CopyInput(context.stream, spec_.inputs_on_device, output_gradients[i], Gradient(outputs_[i], context.batch));
  }
  RunPhase(context, phase, hooks,
           [&](const SublayerContext& c, const BackwardHooks& h) { BackwardParts(c, phase, h); });
}

void Chunk::RunPhase(const SublayerContext& context, const Phase& phase, const BackwardHooks& hooks, Work work) {
  const std::function<void(int32_t)> launched_first = LaunchedFirst(context, hooks);
  BackwardHooks direct = hooks;
  if (hooks.complete != nullptr) direct.complete = &launched_first;
  if (graphs_ == nullptr || !uses_graphs_ || context.observer != nullptr) return work(context, direct);
  const GraphKey key{.phase = phase.phase,
                     .slot = context.batch.micro_batch % spec_.slots,
                     .pending_slot = phase.pending_slot,
                     .shape = batches_->ShapeOf(context.batch)};
  const auto launch = [&](const GraphCache::Cut* cut) {
    if (cut == nullptr) return work(context, direct);
    SublayerContext recorded = context;
    recorded.progress = nullptr;  // transfers wait until the graph is launched
    if (hooks.complete == nullptr) return work(recorded, {});
    // A step's last backward with replicas: the graph is cut where enough sublayers' gradients are complete. Only there
    // are gradients launched early, so that those of several sublayers are computed together.
    const int32_t of_a_part = (spec_.last - spec_.first + GraphCache::kMostParts - 1) / GraphCache::kMostParts;
    int32_t cut_at = spec_.last;
    const std::function<void(int32_t)> complete = [&](int32_t first) {
      if (cut_at - first < of_a_part || first == spec_.first) return;
      cut_at = first;
      LaunchGradients(recorded);
      (*cut)(first);
    };
    work(recorded, {.complete = &complete});
  };
  graphs_->Run(*context.stream.device(), key, launch, [&](int32_t first) {
    (*hooks.complete)(first);
    context.Progress();
  });
}

ConstAnyMatrix Chunk::History(const PackedBatch& batch, int64_t entries) const {
  TensorRange range = outputs_[0];
  HADAL_CHECK(tensors_[range.tensor].is_history);
  HADAL_CHECK_EQ(range.first + range.entries, entries);
  return Values(range, batch);
}

PartTensors Chunk::TensorsOf(const PlacedPart& placed, const PackedBatch& batch) const {
  PartTensors tensors{.x = Values(placed.x, batch),
                      .y = Values(placed.y, batch),
                      .saved = placed.recomputed ? shared_.saved() + placed.saved_at : placed.saved.At(batch),
                      .saved_input = SavedInput(placed, batch),
                      .d_x = Gradient(placed.x, batch)};
  tensors.second = Values(placed.second, batch).floats();
  tensors.d_second = Gradient(placed.second, batch).floats();
  tensors.open = Values(placed.open, batch).floats();
  tensors.d_open = Gradient(placed.open, batch).floats();
  if (placed.reads_encoder_output) {
    tensors.encoder_output = Values(encoder_output_, batch);
    tensors.d_encoder_output = Gradient(encoder_output_, batch).floats();
  }
  return tensors;
}

std::byte* Chunk::SavedInput(const PlacedPart& placed, const PackedBatch& batch) const {
  if (spec_.pending_slots == 0) return nullptr;
  return placed.recomputed ? shared_.saved_input() : placed.saved_input.At(batch);
}

void Chunk::ForwardParts(const SublayerContext& context) const {
  for (const PlacedPart& placed : parts_) {
    placed.part->Forward(context, TensorsOf(placed, context.batch));
    context.Progress();
  }
}

void Chunk::BackwardParts(const SublayerContext& context, const Phase& phase, const BackwardHooks& hooks) const {
  const bool whole = phase.phase != GraphPhase::kBackwardInput;
  std::byte* const pending = shared_.pending(phase.pending_slot);
  int64_t place = 0;  // in it, in a whole backward
  const auto complete = [&](int32_t first) {
    if (hooks.complete != nullptr) (*hooks.complete)(first);
  };
  for (size_t i = parts_.size(); i-- > 0;) {
    const PlacedPart& placed = parts_[i];
    ClearGradients(context, i);
    PartTensors tensors = TensorsOf(placed, context.batch);
    if (placed.y.tensor >= 0) tensors.d_y = OutputGradient(context, placed);
    if (placed.recomputed && whole && !spec_.forks) tensors.saved = shared_.saved();
    if (placed.recomputed) Recompute(context, placed, tensors, hooks);
    for (int32_t step = placed.part->steps() - 1; step >= 0; --step) {
      tensors.pending = pending + (whole ? place + placed.whole_at[step] : placed.pending_at[step]);
      placed.part->BackwardInput(context, tensors, step);
      if (!whole) continue;
      placed.part->BackwardWeight(context, tensors, step);
      // The next step overwrites what the products read.
      if (context.gradients != nullptr && step % steps_together_ == 0 &&
          context.gradients->LaunchProducts(context.stream)) {
        place = other_place_ - place;
      }
      // The step's own sublayer is not complete yet: its norm's backward may be in the step before it.
      if (placed.part->completes_by_step()) complete(placed.first_sublayer + step + 1);
    }
    complete(placed.first_sublayer);
    context.Progress();
  }
  LaunchGradients(context);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const AnyMatrix from = Gradient(inputs_[i], context.batch), to = input_gradient(i, context.batch);
    if (from.data != to.data) Copy(context.stream, from, to);
  }
}

void Chunk::WeightParts(std::span<const PendingHalf> halves, const BackwardHooks& hooks) const {
  for (size_t i = parts_.size(); i-- > 0;) {
    const PlacedPart& placed = parts_[i];
    for (int32_t step = placed.part->steps() - 1; step >= 0; --step) {
      for (const PendingHalf& half : halves) {
        PartTensors tensors = TensorsOf(placed, half.context.batch);
        tensors.d_y = Gradient(placed.y, half.context.batch);  // only its shape is read
        tensors.pending = shared_.pending(half.slot) + placed.pending_at[step];
        placed.part->BackwardWeight(half.context, tensors, step);
      }
      if (hooks.complete != nullptr) (*hooks.complete)(placed.first_sublayer + step);
    }
  }
  LaunchGradients(halves.back().context);
}

void Chunk::ClearGradients(const SublayerContext& context, size_t reader) const {
  const auto clear = [&](const TensorRange& range, bool has_readers) {
    if (!has_readers || tensors_[range.tensor].last_reader != static_cast<int32_t>(reader)) return;
    const AnyMatrix gradient = Gradient(range, context.batch);
    context.stream.Clear(gradient.data, gradient.bytes());
  };
  const PlacedPart& placed = parts_[reader];
  clear(placed.x, placed.x.tensor >= 0 && tensors_[placed.x.tensor].is_history);
  clear(encoder_output_, placed.reads_encoder_output);
}

AnyMatrix Chunk::OutputGradient(const SublayerContext& context, const PlacedPart& placed) const {
  const AnyMatrix gradient = Gradient(placed.y, context.batch);
  const AnyMatrix residual = shared_.gradient(tensors_[placed.y.tensor].type.rows).View(context.batch, 0, 1);
  if (gradient.storage == residual.storage) return gradient;
  Convert(context.stream, {.from = gradient, .to = residual});
  return residual;
}

void Chunk::Recompute(const SublayerContext& context, const PlacedPart& placed, const PartTensors& tensors,
                      const BackwardHooks& hooks) const {
  const Stopwatch watch;
  const TraceEvent event{.kind = TraceKind::kRecompute, .micro_batch = context.batch.micro_batch};
  const bool on_device = context.stream.device() != nullptr;  // then it is only enqueued here
  const TraceRange range(on_device ? hooks.trace : nullptr, event);
  const TraceScope scope(on_device ? nullptr : hooks.trace, event);
  SublayerContext unobserved = context;
  unobserved.observer = nullptr;
  PartTensors again = tensors;
  again.y = shared_.discard(tensors.y.rows, tensors.y.storage);
  again.second = {};
  placed.part->Forward(unobserved, again);
  if (hooks.recompute_seconds != nullptr && !on_device) *hooks.recompute_seconds += watch.Seconds();
}

}  // namespace hadal
