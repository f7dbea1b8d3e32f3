#include "pipeline/decode/decode_buffers.h"

#include <numeric>

#include "layers/parameter_store.h"
#include "runtime/check.h"

namespace hadal {

DecodeLane::DecodeLane(const DecodeCapacity& capacity, bool on_device)
    : capacity_(capacity),
      on_device_(on_device),
      path_stride_(capacity.longest_path),
      encoder_stride_(capacity.longest_source),
      tokens_(capacity.rows),
      positions_(capacity.rows),
      cache_rows_(capacity.rows),
      paths_(capacity.rows * path_stride_),
      previous_paths_(capacity.rows * path_stride_),
      path_lengths_(capacity.rows),
      encoder_output_(capacity.rows * encoder_stride_),
      encoder_lengths_(capacity.rows) {
  batch_.source.reserve(capacity.source_rows);
  batch_.source_offsets.reserve(capacity.sentences + 1);
  batch_.samples.reserve(capacity.sentences);
  encoder_rows_.reserve(capacity.source_rows);
}

void DecodeLane::AppendFrames(std::span<const float> frames) {
  batch_.frames.insert(batch_.frames.end(), frames.begin(), frames.end());
  batch_.frame_offsets.push_back(static_cast<int32_t>(std::ssize(batch_.frames) / batch_.frame_width));
}

void DecodeLane::BeginGroup(const DecodeCommand& command, std::span<const std::span<const float>> utterances,
                            int32_t frame_width) {
  HADAL_CHECK(command.kind == DecodeCommand::Kind::kEncode);
  batch_.frame_width = frame_width;
  batch_.frames.clear();
  batch_.frame_offsets.assign(1, 0);
  if (frame_width > 0) {
    for (size_t n = 0; n + 1 < command.source_offsets.size(); ++n) {
      AppendFrames(utterances[command.source[command.source_offsets[n]]]);
    }
  }
  batch_.source = command.source;
  batch_.source_offsets = command.source_offsets;
  encoder_rows_.resize(command.source.size());
  std::iota(encoder_rows_.begin(), encoder_rows_.end(), 1);
  HADAL_CHECK_LT(batch_.source_rows(), capacity_.cache_rows);
  if (on_device_) {
    HADAL_CHECK_LE(batch_.source_rows(), capacity_.source_rows);
    batch_.source.resize(capacity_.source_rows, kPaddingRow);
  }
  encoder_rows_.resize(batch_.source.size(), 0);
  batch_.target_offsets.assign(batch_.source_offsets.size(), 0);
  batch_.samples.assign(batch_.source_offsets.size() - 1, 0);
  batch_.micro_batch = command.lane;
}

void DecodeLane::SetRow(int64_t row, const StepRow& step) {
  tokens_[row] = step.token;
  positions_[row] = step.position;
  HADAL_CHECK_GE(step.cache_row, 0);
  HADAL_CHECK_LT(step.cache_row, capacity_.cache_rows);
  cache_rows_[row] = step.cache_row;
  int32_t* const path = paths_.data() + row * path_stride_;
  HADAL_CHECK_LT(step.position, path_stride_);
  if (step.position > 0) std::copy_n(previous_paths_.data() + step.parent * path_stride_, step.position, path);
  path[step.position] = step.cache_row;
  path_lengths_[row] = step.position + 1;
  const int32_t begin = batch_.source_offsets[step.sentence];
  encoder_lengths_[row] = batch_.source_offsets[step.sentence + 1] - begin;
  int32_t* const rows_of_hypothesis = encoder_output_.data() + row * encoder_stride_;
  std::iota(rows_of_hypothesis, rows_of_hypothesis + encoder_lengths_[row], 1 + begin);
}

void DecodeLane::FillRow(int64_t row) {
  tokens_[row] = kEosToken;
  positions_[row] = 0;
  cache_rows_[row] = 0;
  paths_[row * path_stride_] = 0;
  path_lengths_[row] = 1;
  encoder_output_[row * encoder_stride_] = 0;
  encoder_lengths_[row] = 1;
}

void DecodeLane::BeginStep(const DecodeCommand& command) {
  HADAL_CHECK(command.kind == DecodeCommand::Kind::kStep);
  std::swap(paths_, previous_paths_);
  const auto used = static_cast<int64_t>(command.rows.size());
  const int64_t rows = on_device_ ? capacity_.rows : used;
  HADAL_CHECK_LE(used, rows);
  HADAL_CHECK_LE(rows, static_cast<int64_t>(tokens_.size()));
  for (int64_t i = 0; i < used; ++i) SetRow(i, command.rows[i]);
  for (int64_t i = used; i < rows; ++i) FillRow(i);
  rows_ = {.tokens = {tokens_.data(), rows},
           .positions = {positions_.data(), rows},
           .cache_rows = {{cache_rows_.data(), rows}},
           .self = {{paths_.data(), rows * path_stride_}, path_stride_, {path_lengths_.data(), rows}},
           .encoder_output = {
               {encoder_output_.data(), rows * encoder_stride_}, encoder_stride_, {encoder_lengths_.data(), rows}}};
}

ActivationCapacity GroupCapacity(const DecodeCapacity& capacity) {
  return {.source_rows = capacity.source_rows, .target_rows = 0, .max_length = capacity.longest_source};
}

// Also of a step's rows, which the norm behind the embedding writes.
ActivationCapacity WorkspaceCapacity(const DecodeCapacity& capacity) {
  ActivationCapacity group = GroupCapacity(capacity);
  group.source_rows = std::max<decltype(group.source_rows)>(group.source_rows, capacity.rows);
  return group;
}

DecodeBuffers::DecodeBuffers(const ModelPlan& plan, const DecodeCapacity& capacity, const Stream& stream,
                             ArenaLayout& layout)
    : width_(plan.options.d_model),
      workspace_(plan, WorkspaceCapacity(capacity), stream, Purpose::kInference, layout),
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
