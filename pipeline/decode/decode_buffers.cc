#include "pipeline/decode/decode_buffers.h"

#include <algorithm>

#include "layers/parameter_store.h"
#include "runtime/check.h"

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
  const int64_t second_rows = std::max(plan.HasSecond(Stack::kEncoder) ? capacity.source_rows : 0,
                                       plan.HasSecond(Stack::kDecoder) ? capacity.rows : 0);
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

namespace {

// Writes tables one behind the other, and says where the device will find each.
class Tables {
 public:
  Tables(int32_t* on_host, const int32_t* on_device) : on_host_(on_host), on_device_(on_device) {}

  const int32_t* Add(const ConstTokens& table) {
    std::copy_n(table.data, table.size, on_host_ + words_);
    const int32_t* const address = on_device_ + words_;
    words_ += table.size;
    return address;
  }
  int64_t words() const { return words_; }

 private:
  int32_t* on_host_;
  const int32_t* on_device_;
  int64_t words_ = 0;
};

constexpr int64_t kWordBytes = sizeof(int32_t);

}  // namespace

DecodeBlocks::DecodeBlocks(const DecodeCapacity& capacity, ArenaLayout& layout)
    : rows_(capacity.rows),
      source_rows_(capacity.source_rows),
      step_words_(capacity.rows * (5 + capacity.longest_path + capacity.longest_source)),
      group_words_(capacity.source_rows) {
  const int64_t bytes = capacity.lanes * (step_words_ + group_words_) * kWordBytes;
  device_slice_ = layout.ReserveBytes("decode tables", bytes);
  host_slice_ = layout.ReserveHostBytes("decode tables", bytes);
}

void DecodeBlocks::Bind(const Arena& arena) {
  on_device_ = arena.Get<int32_t>(device_slice_);
  on_host_ = arena.Get<int32_t>(host_slice_);
}

void DecodeBlocks::FillStep(const Stream& stream, int32_t lane, IncrementalRows& rows) const {
  HADAL_CHECK_EQ(rows.rows(), rows_);
  const int64_t offset = lane * (step_words_ + group_words_);
  Tables tables(on_host_ + offset, on_device_ + offset);
  rows.device_tokens.tokens = tables.Add(rows.tokens);
  rows.device_tokens.positions = tables.Add(rows.positions);
  rows.cache_rows.device_rows = tables.Add(rows.cache_rows.rows);
  for (CacheIndex* index : {&rows.self, &rows.encoder_output}) {
    index->device_lengths = tables.Add(index->lengths);
    index->device_indices = tables.Add(index->indices);
  }
  HADAL_CHECK_EQ(tables.words(), step_words_);
  stream.device()->EnqueueCopyIn(on_device_ + offset, on_host_ + offset, step_words_ * kWordBytes);
}

void DecodeBlocks::FillGroup(const Stream& stream, int32_t lane, CacheRows& encoder_output) const {
  HADAL_CHECK_EQ(encoder_output.rows.size, source_rows_);
  const int64_t offset = lane * (step_words_ + group_words_) + step_words_;
  Tables tables(on_host_ + offset, on_device_ + offset);
  encoder_output.device_rows = tables.Add(encoder_output.rows);
  stream.device()->EnqueueCopyIn(on_device_ + offset, on_host_ + offset, group_words_ * kWordBytes);
}

}  // namespace hadal
