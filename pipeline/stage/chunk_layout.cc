// A chunk's parts, their tensors and where these lie; chunk.cc runs them.
#include <algorithm>
#include <utility>

#include "layers/adaptive_head.h"
#include "layers/block_reader.h"
#include "layers/chunk_part.h"
#include "layers/layer_combination.h"
#include "layers/output_head.h"
#include "layers/second_stream.h"
#include "layers/speech_front_end.h"
#include "layers/token_embedding.h"
#include "pipeline/stage/chunk.h"
#include "runtime/check.h"

namespace hadal {

Chunk::Chunk(const ModelPlan& plan, const ChunkSpec& spec, const ActivationCapacity& capacity,
             SharedActivations& shared, ArenaLayout& layout)
    : plan_(plan), spec_(spec), shared_(shared), steps_together_(spec.on_device ? kDeviceSteps : 1) {
  HADAL_CHECK_LT(spec.first, spec.last);
  if (spec.first > 0) input_edges_ = BorderEdges(plan, spec.first);
  if (spec.last < static_cast<int32_t>(plan.sublayers.size())) output_edges_ = BorderEdges(plan, spec.last);
  HADAL_CHECK_EQ(spec.known_inputs > 0, spec.before != nullptr);
  inputs_.resize(input_edges_.size());
  const int32_t target = plan.target_embedding();
  const bool decodes = plan.options.has_decoder();
  const TensorRange encoded = AddStack(Stack::kEncoder, capacity, layout);
  if (decodes && spec.last >= target) encoder_output_ = encoded;
  for (size_t i = 0; i < input_edges_.size(); ++i) {
    const bool is_stream = input_edges_[i].kind != EdgeKind::kEncoderOutput && spec.first != target;
    if (is_stream) continue;  // AddStack
    encoder_output_ = inputs_[i] = AddTensor({.rows = Stack::kEncoder, .storage = plan.compute_storage});
  }
  const TensorRange last = decodes ? AddStack(Stack::kDecoder, capacity, layout) : encoded;
  if (spec.last > plan.output_head()) AddHead(last, capacity, layout);
  for (const Edge& edge : output_edges_) {
    const bool is_encoder_output = edge.kind == EdgeKind::kEncoderOutput || spec.last == target;
    TensorRange range = edge.kind == EdgeKind::kSecondStream ? second_streams_[static_cast<size_t>(edge.rows)]
                        : is_encoder_output                  ? encoder_output_
                        : edge.rows == Stack::kEncoder       ? encoded
                                                             : last;
    HADAL_CHECK_EQ(range.first + range.entries, edge.entries);
    outputs_.push_back(range);
  }
  FindWritersAndReaders();
  PlaceTensors(capacity, layout);
  PlaceParts(shared, layout);
  if (!spec.on_device) return;
  batches_.emplace(
      BatchSlots::Spec{.first_sublayer = spec.first,
                       .sublayers = spec.last - spec.first,
                       .slots = spec.slots,
                       .capacity = capacity,
                       .frame_width = spec.first == plan.source_embedding() ? plan.options.frame_width : 0},
      layout);
  if (spec.graphs) graphs_ = std::make_unique<GraphCache>(MostGraphs(spec.slots, spec.pending_slots, spec.replicas));
}

void Chunk::AddHead(const TensorRange& x, const ActivationCapacity& capacity, ArenaLayout& layout) {
  std::unique_ptr<OutputHead> head;
  if (plan_.options.adaptive()) {
    head = std::make_unique<AdaptiveHead>(plan_, capacity, spec_.purpose, layout);
  } else if (!plan_.options.has_decoder()) {
    head = std::make_unique<MaskedHead>(plan_, capacity, spec_.purpose, layout);
  } else {
    head = std::make_unique<OutputHead>(plan_, capacity, spec_.purpose);
  }
  head_ = head.get();
  parts_.push_back({.part = std::move(head), .first_sublayer = plan_.output_head(), .x = x});
  parts_.back().rereads_x = false;  // its forward makes the gradients
}

Chunk::TensorRange Chunk::AddTensor(const TensorType& type) {
  tensors_.push_back({.type = type});
  return {.tensor = static_cast<int32_t>(tensors_.size()) - 1};
}

Chunk::TensorRange Chunk::AddStack(Stack stack, const ActivationCapacity& capacity, ArenaLayout& layout) {
  const bool encodes = stack == Stack::kEncoder;
  const int32_t embedding = encodes ? plan_.source_embedding() : plan_.target_embedding();
  const int32_t end = encodes ? plan_.encoder_end() : plan_.output_head();
  const int32_t first = std::max(spec_.first, embedding + 1), last = std::min(spec_.last, end);
  const bool embeds = embedding >= spec_.first && embedding < spec_.last;
  // The head, too, reads the last stack's residual stream.
  const bool heads = end == plan_.output_head();
  const bool continues = spec_.first > std::max(embedding, 0) && (heads ? spec_.first <= end : spec_.first < end);
  if (!embeds && !continues) return {};
  TensorType type{.rows = stack, .storage = embeds ? plan_.residual_storage(stack) : input_edges_[0].values};
  const bool keeps = plan_.KeepsHistory(stack) && (embeds || first < last);
  if (keeps && first < last) type.entries = plan_.HistoryBefore(last);
  TensorRange x = AddTensor(type);
  tensors_.back().is_history = keeps;
  if (embeds) {
    std::unique_ptr<ChunkPart> part;
    if (encodes && plan_.options.reads_speech()) {
      const DeviceKind kind = spec_.on_device ? DeviceKind::kCuda : DeviceKind::kCpu;
      part = std::make_unique<SpeechFrontEnd>(plan_, capacity.source_rows, kind, spec_.purpose, layout);
    } else {
      part = std::make_unique<TokenEmbedding>(plan_, embedding, capacity.rows(stack), spec_.purpose, layout);
    }
    parts_.push_back({.part = std::move(part), .first_sublayer = embedding, .y = x});
  } else {
    x.entries = input_edges_[0].entries;
    if (!keeps) tensors_.back().type.entries = x.entries;
    inputs_[0] = x;
  }
  if (first >= last) return x;
  AddSecondStream(stack);
  return AddSegments(first, last, x, capacity);
}

void Chunk::AddSecondStream(Stack stack) {
  const bool has_second = plan_.HasSecondStream(stack);
  const bool arrives = std::ranges::any_of(
      input_edges_, [&](const Edge& edge) { return edge.kind == EdgeKind::kSecondStream && edge.rows == stack; });
  if (!has_second && !arrives) return;
  const TensorRange second = second_streams_[static_cast<size_t>(stack)] = AddTensor({.rows = stack});
  tensors_.back().is_second = has_second;
  for (size_t i = 0; i < input_edges_.size(); ++i) {
    if (input_edges_[i].kind == EdgeKind::kSecondStream && input_edges_[i].rows == stack) inputs_[i] = second;
  }
}

Chunk::TensorRange Chunk::AddSegments(int32_t first, int32_t last, TensorRange x, const ActivationCapacity& capacity) {
  const Stack stack = plan_.sublayers[first].stack;
  const bool combines = plan_.Combines(stack), reads_blocks = plan_.ReadsBlocks(stack);
  TensorRange& open = second_streams_[static_cast<size_t>(stack)];  // if it reads blocks
  const TensorRange second = reads_blocks ? TensorRange() : open;
  // With a history a segment is a layer: its input is kept in any case.
  for (int32_t begin = first, end = first; begin < last; begin = end) {
    const auto [length, run_end] = LengthAt(spec_.recompute, begin);
    const int32_t most = std::min(run_end, last) - begin;
    end = plan_.SegmentEnd(begin, combines ? 1 : length > 0 ? std::min(length, most) : most, last);
    const bool is_entry = combines || (reads_blocks && plan_.OpenSublayers(end) == 0);
    TensorRange y{.tensor = x.tensor, .first = x.entries};
    if (!is_entry) {
      const int64_t streams = plan_.ResidualsBefore(end);
      y = AddTensor({.rows = stack, .entries = streams, .storage = plan_.segment_storage(stack, end)});
      y.entries = streams;
    }
    parts_.push_back({.part = MakeSegment(plan_, begin, end, capacity),
                      .first_sublayer = begin,
                      .x = x,
                      .y = y,
                      .second = second,
                      .open = reads_blocks ? open : TensorRange(),
                      .reads_encoder_output = stack == Stack::kDecoder && encoder_output_.tensor >= 0,
                      .recomputed = length > 0});
    if (reads_blocks) open = is_entry ? TensorRange() : y;
    if (is_entry) {
      x = {.tensor = x.tensor, .entries = x.entries + 1};
    } else if (!reads_blocks) {
      x = y;
    }
  }
  const bool keeps = plan_.KeepsHistory(stack);
  if (!plan_.ends_stack(last) || (!keeps && second.tensor < 0)) return x;
  std::unique_ptr<ChunkPart> end;
  if (combines) {
    end = std::make_unique<LayerCombination>(plan_, last - 1, capacity.rows(stack));
  } else if (reads_blocks) {
    end = std::make_unique<BlockReadingEnd>(plan_, last - 1, capacity.rows(stack));
  } else {
    end = std::make_unique<SecondStreamEnd>(plan_, last - 1, capacity.rows(stack));
  }
  const TensorRange y = AddTensor({.rows = stack, .storage = plan_.compute_storage});
  parts_.push_back({.part = std::move(end), .first_sublayer = last, .x = x, .y = y, .second = second});
  parts_.back().rereads_x = keeps;
  parts_.back().rereads_second = !keeps;
  return y;
}

void Chunk::FindWritersAndReaders() {
  const auto read = [this](const TensorRange& range, size_t reader, bool in_backward) {
    if (range.tensor < 0) return;
    Tensor& tensor = tensors_[range.tensor];
    tensor.last_reader = static_cast<int32_t>(reader);
    HADAL_CHECK_LT(tensor.writer, tensor.last_reader);
    tensor.read_in_backward = tensor.read_in_backward || in_backward;
  };
  for (size_t i = 0; i < parts_.size(); ++i) {
    read(parts_[i].x, i, parts_[i].rereads_x);
    if (parts_[i].reads_encoder_output) read(encoder_output_, i, /*in_backward=*/true);
    read(parts_[i].second, i, parts_[i].rereads_second);
    read(parts_[i].open, i, /*in_backward=*/true);
    const TensorRange& y = parts_[i].y;
    if (y.tensor >= 0 && y.first == 0) tensors_[y.tensor].writer = static_cast<int32_t>(i);
  }
  for (const TensorRange& output : outputs_) read(output, parts_.size(), /*in_backward=*/false);
}

void Chunk::PlaceTensors(const ActivationCapacity& capacity, ArenaLayout& layout) {
  const auto place = [&](const TensorType& type, int32_t slots, const char* category) {
    return TensorMemory(type, plan_, capacity, slots, category, layout);
  };
  for (size_t t = 0; t < tensors_.size(); ++t) {
    Tensor& tensor = tensors_[t];
    HADAL_CHECK_GE(tensor.last_reader, 0);
    const bool crosses = tensor.last_reader == std::ssize(parts_);
    tensor.values = tensor.is_history         ? place(tensor.type, spec_.slots, "layer history")
                    : tensor.read_in_backward ? place(tensor.type, spec_.slots, "activations")
                                              : place(tensor.type, 1, crosses ? "borders" : "workspace");
    if (spec_.purpose == Purpose::kInference) continue;
    if (tensor.is_history) {
      TensorType gradient = tensor.type;
      gradient.storage = Storage::kFloat32;
      tensor.gradient = place(gradient, 1, "layer history");
    } else if (tensor.is_second) {
      tensor.gradient = shared_.second_gradient(tensor.type.rows);
    } else {
      tensor.gradient = static_cast<int32_t>(t) == encoder_output_.tensor ? shared_.encoder_output_gradient()
                                                                          : shared_.gradient(tensor.type.rows);
    }
  }
  if (spec_.purpose == Purpose::kInference) return;
  for (size_t i = 0; i < input_edges_.size(); ++i) {
    const Tensor& tensor = tensors_[inputs_[i].tensor];
    input_gradients_.push_back(
        tensor.is_history
            ? tensor.gradient
            : place({.rows = tensor.type.rows, .entries = inputs_[i].entries, .storage = input_edges_[i].gradient}, 1,
                    "borders"));
  }
}

void Chunk::PlaceParts(SharedActivations& shared, ArenaLayout& layout) {
  const bool splits = spec_.pending_slots > 0;
  int64_t saved = 0, pending = 0;             // of the parts so far
  int64_t largest_saved = 0, most_steps = 0;  // of any part
  for (const PlacedPart& placed : parts_) {
    if (placed.recomputed) largest_saved = std::max(largest_saved, ArenaLayout::Aligned(placed.part->saved_bytes()));
  }
  for (PlacedPart& placed : parts_) {
    const int64_t input_bytes = splits ? placed.part->saved_input_bytes() : 0;
    const int64_t kept_bytes = placed.part->saved_bytes() - input_bytes;
    if (placed.recomputed) {
      // A weight half reads what all parts have recomputed.
      if (splits) placed.saved_at = std::exchange(saved, saved + ArenaLayout::Aligned(kept_bytes));
      // Gradients of weights may still read what the part behind has recomputed.
      if (spec_.forks && !splits) placed.saved_at = std::exchange(saved, largest_saved - saved);
      shared.RequireSaved(placed.saved_at + kept_bytes);
      shared.RequireSavedInput(input_bytes);
    } else {
      placed.saved = SlotMemory(kept_bytes, spec_.slots, "activations", layout);
      placed.saved_input = SlotMemory(input_bytes, spec_.input_slots, "activations", layout);
    }
    int64_t together = 0;
    for (int32_t step = 0; step < placed.part->steps(); ++step) {
      if (step % steps_together_ == 0) together = 0;
      const int64_t bytes = ArenaLayout::Aligned(placed.part->pending_bytes(step));
      placed.whole_at.push_back(std::exchange(together, together + bytes));
      placed.pending_at.push_back(std::exchange(pending, pending + bytes));
      most_steps = std::max(most_steps, together);
    }
  }
  if (spec_.forks) other_place_ = most_steps;
  shared.RequirePendingSteps(other_place_ + most_steps);
  if (splits) shared.RequirePendingHalf(pending);
}

void Chunk::Bind(const Arena& arena) {
  for (Tensor& tensor : tensors_) {
    tensor.values.Bind(arena);
    tensor.gradient.Bind(arena);
  }
  for (TensorMemory& gradient : input_gradients_) gradient.Bind(arena);
  for (PlacedPart& placed : parts_) {
    placed.saved.Bind(arena);
    placed.saved_input.Bind(arena);
    placed.part->Bind(arena);
  }
  if (batches_) batches_->Bind(arena);
}

SharedActivations::SharedActivations(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose,
                                     ArenaLayout& layout)
    : purpose_(purpose), width_(plan.options.d_model) {
  if (purpose == Purpose::kInference) return;
  const auto place = [&](Stack stack, Storage storage, int64_t entries = 1) {
    return TensorMemory({.rows = stack, .entries = entries, .storage = storage}, plan, capacity, 1, "workspace",
                        layout);
  };
  Storage widest = plan.compute_storage;
  int64_t most_rows = 0;
  for (const Stack stack : {Stack::kEncoder, Stack::kDecoder}) {
    if (stack == Stack::kDecoder && !plan.options.has_decoder()) break;  // its rows are the masked ones
    const Storage storage = plan.residual_storage(stack);
    gradients_[static_cast<size_t>(stack)] = place(stack, storage, plan.Residuals(stack));
    most_rows = std::max(most_rows, plan.Residuals(stack) * capacity.rows(stack));
    if (plan.HasSecondStream(stack)) second_gradients_[static_cast<size_t>(stack)] = place(stack, Storage::kFloat32);
    if (BytesOf(storage) > BytesOf(widest)) widest = storage;
  }
  if (plan.options.has_decoder())
    encoder_output_gradient_ = plan.residual_storage(Stack::kEncoder) == Storage::kFloat32
                                   ? gradient(Stack::kEncoder)
                                   : place(Stack::kEncoder, Storage::kFloat32);
  discard_slice_ = layout.ReserveBytes("workspace", most_rows * width_ * BytesOf(widest));
}

void SharedActivations::ReserveRequired(int32_t pending_slots, ArenaLayout& layout) {
  saved_slice_ = layout.ReserveBytes("activations", saved_bytes_ + saved_input_bytes_);
  if (purpose_ == Purpose::kInference) return;
  const int64_t halves = pending_slots * half_bytes_;
  pending_slice_ =
      layout.ReserveBytes(halves > 0 ? "pending weight halves" : "workspace", std::max(halves, step_bytes_));
}

void SharedActivations::Bind(const Arena& arena) {
  for (TensorMemory& gradient : gradients_) gradient.Bind(arena);
  for (TensorMemory& gradient : second_gradients_) gradient.Bind(arena);
  encoder_output_gradient_.Bind(arena);
  discard_ = arena.Get<std::byte>(discard_slice_);
  saved_ = arena.Get<std::byte>(saved_slice_);
  pending_ = arena.Get<std::byte>(pending_slice_);
}

}  // namespace hadal
