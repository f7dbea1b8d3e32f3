#include "pipeline/decode/decode_buffers.h"
#include "layers/purpose.h"

#include <algorithm>

namespace hadal {

ActivationCapacity GroupCapacity(const DecodeCapacity& capacity) {
  return {.source_rows = capacity.source_rows, .target_rows = 0, .max_length = capacity.longest_source};
}

DecodeBuffers::DecodeBuffers(const ModelPlan& plan, const DecodeCapacity& capacity, const Stream& stream,
                             ArenaLayout& layout)
    : width_(plan.options.d_model),
      workspace_(plan, GroupCapacity(capacity), stream, Purpose::kInference, layout),
      scratch_(plan,
               {.rows = capacity.rows,
                .encoder_rows = capacity.source_rows,
                .longest = std::max(capacity.longest_source, capacity.longest_path)},
               stream, layout) {
  for (ArenaSlice& slice : residual_slices_) {
    const auto bytes_of = [&](Stack stack, int64_t rows) {
      return plan.Residuals(stack) * rows * width_ *
             std::max(BytesOf(plan.compute_storage), BytesOf(plan.residual_storage(stack)));
    };
    slice = layout.ReserveBytes("decode workspace", std::max(bytes_of(Stack::kEncoder, capacity.source_rows),
                                                             bytes_of(Stack::kDecoder, capacity.rows)));
  }
  const int64_t second_rows = std::max(plan.HasSecondStream(Stack::kEncoder) ? capacity.source_rows : 0,
                                       plan.HasSecondStream(Stack::kDecoder) ? capacity.rows : 0);
  if (second_rows > 0) second_slice_ = layout.Reserve<float>("decode workspace", second_rows * width_);
}

void DecodeBuffers::Bind(const Arena& arena) {
  workspace_.Bind(arena);
  scratch_.Bind(arena);
  saved_ = arena.Get<std::byte>(saved_slice_);
  history_ = arena.Get<std::byte>(history_slice_);
  if (second_slice_.bytes > 0) second_ = arena.Get<float>(second_slice_);
  for (int i = 0; i < 2; ++i) residuals_[i] = arena.Get<std::byte>(residual_slices_[i]);
}

}  // namespace hadal
