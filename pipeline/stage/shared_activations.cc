#include "pipeline/stage/shared_activations.h"

namespace hadal {

void SharedActivations::Reserve(const ModelPlan& plan, const ActivationCapacity& capacity, Purpose purpose,
                                ArenaLayout& layout) {
  width_ = plan.options.d_model;
  source_storage_ = plan.residual_storage(Stack::kEncoder);
  target_storage_ = plan.residual_storage(Stack::kDecoder);
  saved_slice_ = layout.ReserveBytes("activations", saved_bytes_);
  if (purpose == Purpose::kInference) return;
  const auto reserve = [&](int64_t rows, Storage storage) {
    return layout.ReserveBytes("workspace", rows * width_ * BytesOf(storage));
  };
  const auto wider = [](Storage a, Storage b) { return BytesOf(a) > BytesOf(b) ? a : b; };
  const Storage widest = wider(plan.compute_storage, wider(source_storage_, target_storage_));
  discard_slice_ = reserve(std::max(capacity.source_rows, capacity.target_rows), widest);
  source_slice_ = reserve(capacity.source_rows, source_storage_);
  target_slice_ = reserve(capacity.target_rows, target_storage_);
  if (encoder_output_apart()) encoder_output_slice_ = reserve(capacity.source_rows, Storage::kFloat32);
}

void SharedActivations::Bind(const Arena& arena) {
  saved_ = arena.Get<std::byte>(saved_slice_);
  discard_ = arena.Get<std::byte>(discard_slice_);
  source_gradient_ = arena.Get<std::byte>(source_slice_);
  target_gradient_ = arena.Get<std::byte>(target_slice_);
  encoder_output_gradient_ = arena.Get<float>(encoder_output_apart() ? encoder_output_slice_ : source_slice_);
}

}  // namespace hadal
