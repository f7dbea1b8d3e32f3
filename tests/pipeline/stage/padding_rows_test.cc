// Padding rows on a device: whatever stands in them, and in memory that nobody has written yet, every gradient of
// theirs is 0, and no gradient of a weight and no row of a sentence has another bit.
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

#include "gtest/gtest.h"
#include "layers/chunk_part.h"
#include "layers/initialization.h"
#include "layers/layer_combination.h"
#include "layers/output_head.h"
#include "layers/parameter_store.h"
#include "layers/second_stream.h"
#include "pipeline/stage/batch_slots.h"
#include "runtime/arena.h"
#include "runtime/random.h"
#include "tests/support/small_model.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int64_t kWidth = 32, kSourceRows = 16, kTargetRows = 24;
constexpr int kVocabulary = 29;

// Two sentence pairs of 4 and 5 source rows, 6 and 11 target rows; the other rows are padding.
PackedBatch Batch() {
  PackedBatch batch{.source_offsets = {0, 4, 9}, .target_offsets = {0, 6, 17}, .samples = {0, 1}};
  const auto tokens = [](int64_t sentence_rows, int64_t rows) {
    std::vector<int32_t> list(rows, kPaddingRow);
    for (int64_t r = 0; r < sentence_rows; ++r) list[r] = static_cast<int32_t>(kSpecialTokens + r * 7 % 20);
    return list;
  };
  batch.source = tokens(9, kSourceRows);
  batch.target_input = tokens(17, kTargetRows);
  batch.target = tokens(17, kTargetRows);
  return batch;
}

// [rows, kWidth] normal numbers, padding rows of another stream, `poison` times as large.
std::vector<float> Rows(uint64_t seed, int64_t sentence_rows, int64_t rows, float poison, uint32_t stream) {
  std::vector<float> values(rows * kWidth);
  for (int64_t i = 0; i < rows * kWidth; ++i) {
    const bool padding = i / kWidth >= sentence_rows;
    values[i] = padding && poison == 0
                    ? 0.0f
                    : static_cast<float>(NormalAt(seed, RandomSite::kSampling, padding ? stream : 0, i)) *
                          (padding ? poison : 1.0f);
  }
  return values;
}

constexpr ActivationCapacity kCapacity{.source_rows = kSourceRows, .target_rows = kTargetRows, .max_length = 16};

// A stack as a chunk runs it: one segment, or, where layers are combined, one a layer on a history; and what closes it,
// also behind a second stream.
class StackRun {
 public:
  StackRun(const ModelPlan& plan, int32_t first, int32_t last, ArenaLayout& layout)
      : stack_(plan.sublayers[first].stack) {
    const bool combines = plan.Combines(stack_);
    int64_t pending_bytes = 0;
    for (int32_t s = first, end = s; s < last; s = end) {
      end = combines ? plan.NextCut(s + 1) : last;
      segments_.push_back(MakeSegment(plan, s, end, kCapacity));
      saved_.push_back(layout.ReserveBytes("saved", segments_.back()->saved_bytes()));
      for (int32_t step = 0; step < segments_.back()->steps(); ++step) {
        pending_bytes = std::max(pending_bytes, segments_.back()->pending_bytes(step));
      }
    }
    pending_ = layout.ReserveBytes("pending", pending_bytes);
    if (plan.HasSecondStream(stack_)) {
      second_end_.emplace(plan, last - 1, kCapacity.rows(stack_));
      saved_.push_back(layout.ReserveBytes("saved", second_end_->saved_bytes()));
      for (ArenaSlice& slice : seconds_) slice = layout.Reserve<float>("second", kCapacity.rows(stack_) * kWidth);
    }
    if (!combines) return;
    closing_.emplace(plan, last - 1, kCapacity.rows(stack_));
    saved_.push_back(layout.ReserveBytes("saved", closing_->saved_bytes()));
    const int64_t elements = closing_->entries() * kCapacity.rows(stack_) * kWidth;
    for (ArenaSlice& slice : histories_) slice = layout.Reserve<float>("history", elements);
  }

  void Forward(const SublayerContext& context, const Arena& arena, Matrix encoder_output, Matrix x, Matrix out) const {
    PartTensors tensors{.x = x, .encoder_output = encoder_output, .y = out, .saved = Saved(arena, 0)};
    if (second_end_) {
      tensors.second = Second(arena, 0);
      tensors.y = Second(arena, 2);
      segments_[0]->Forward(context, tensors);
      return second_end_->Forward(context,
                                  {.x = tensors.y, .y = out, .second = tensors.second, .saved = Saved(arena, 1)});
    }
    if (!closing_) return segments_[0]->Forward(context, tensors);
    context.stream.Copy(Entries(arena, 0, 0, 1).data, x.data, AnyMatrix(x).bytes());
    for (size_t k = 0; k < segments_.size(); ++k) {
      const int64_t entries = static_cast<int64_t>(k) + 1;
      tensors.x = Entries(arena, 0, 0, entries);
      tensors.y = Entries(arena, 0, entries, 1);
      tensors.saved = Saved(arena, k);
      segments_[k]->Forward(context, tensors);
    }
    closing_->Forward(
        context, {.x = Entries(arena, 0, 0, closing_->entries()), .y = out, .saved = Saved(arena, segments_.size())});
  }

  // In d_residual, as a segment's.
  void Backward(const SublayerContext& context, const Arena& arena, Matrix encoder_output, Matrix d_encoder_output,
                Matrix x, Matrix d_residual) const {
    PartTensors tensors{.x = x,
                        .encoder_output = encoder_output,
                        .saved = Saved(arena, 0),
                        .d_y = d_residual,
                        .d_x = d_residual,
                        .d_encoder_output = d_encoder_output,
                        .pending = arena.Get<std::byte>(pending_)};
    if (second_end_) {
      tensors.second = Second(arena, 0);
      tensors.d_second = Second(arena, 1);
      BackwardOf(*second_end_, context,
                 {.second = tensors.second, .d_second = tensors.d_second, .saved = Saved(arena, 1), .d_y = d_residual});
    }
    if (!closing_) return BackwardOf(*segments_[0], context, tensors);
    const Matrix all = Entries(arena, 1, 0, closing_->entries());
    context.stream.Clear(all.data, AnyMatrix(all).bytes());
    BackwardOf(*closing_, context,
               {.x = Entries(arena, 0, 0, closing_->entries()),
                .saved = Saved(arena, segments_.size()),
                .d_y = d_residual,
                .d_x = all});
    for (size_t k = segments_.size(); k-- > 0;) {
      const int64_t entries = static_cast<int64_t>(k) + 1;
      tensors.x = Entries(arena, 0, 0, entries);
      tensors.saved = Saved(arena, k);
      tensors.d_y = Entries(arena, 1, entries, 1);
      tensors.d_x = Entries(arena, 1, 0, entries);
      BackwardOf(*segments_[k], context, tensors);
    }
    context.stream.Copy(d_residual.data, Entries(arena, 1, 0, 1).data, AnyMatrix(d_residual).bytes());
  }

 private:
  static void BackwardOf(const ChunkPart& part, const SublayerContext& context, const PartTensors& tensors) {
    for (int32_t step = part.steps() - 1; step >= 0; --step) {
      part.BackwardInput(context, tensors, step);
      part.BackwardWeight(context, tensors, step);
    }
  }
  std::byte* Saved(const Arena& arena, size_t index) const { return arena.Get<std::byte>(saved_[index]); }
  // Of the second stream: itself, its gradient, and the residual stream in front of its end.
  Matrix Second(const Arena& arena, int which) const {
    return {arena.Get<float>(seconds_[which]), kCapacity.rows(stack_), kWidth};
  }
  // Of the history, or, `which` = 1, its gradient.
  Matrix Entries(const Arena& arena, int which, int64_t first, int64_t count) const {
    const int64_t rows = kCapacity.rows(stack_);
    return {arena.Get<float>(histories_[which]) + first * rows * kWidth, count * rows, kWidth};
  }

  Stack stack_;
  std::vector<std::unique_ptr<ChunkPart>> segments_;
  std::optional<LayerCombination> closing_;
  std::optional<SecondStreamEnd> second_end_;
  std::vector<ArenaSlice> saved_;
  ArenaSlice pending_, histories_[2], seconds_[3];
};

// What a forward and a backward through a model leave that may not depend on padding.
struct Outcome {
  std::vector<float> gradients, encoder_gradient, decoder_gradient, encoder_output_gradient, head_gradient;
  double loss = 0;
};

class PaddedModel {
 public:
  explicit PaddedModel(ResidualMethod method)
      : device_(MakeTestDevice(5)),
        stream_(Stream::On(*device_, 1)),
        plan_(ModelPlan::Make(SmallModel(
            method, {.encoder_layers = 2, .decoder_layers = 2, .d_model = kWidth, .vocabulary = kVocabulary}))),
        layout_(std::make_unique<ArenaLayout>()),
        base_(layout_->ReserveLasting<float>("base", 16)),
        parameters_(plan_, Sublayers(), Purpose::kTraining, *layout_),
        workspace_(plan_, kCapacity, stream_, Purpose::kTraining, *layout_),
        slots_({.first_sublayer = 0,
                .sublayers = static_cast<int32_t>(plan_.sublayers.size()),
                .slots = 1,
                .capacity = kCapacity},
               *layout_),
        encoder_(plan_, 1, plan_.target_embedding(), *layout_),
        decoder_(plan_, plan_.target_embedding() + 1, plan_.output_head(), *layout_),
        head_(plan_, kCapacity, Purpose::kTraining),
        head_saved_(layout_->ReserveBytes("saved", head_.saved_bytes())) {
    const int64_t rows = kTargetRows * plan_.Residuals(Stack::kDecoder);  // a gradient's, of all streams
    for (ArenaSlice& slice : matrices_) slice = layout_->Reserve<float>("rows", rows * kWidth);
    arena_ = *Arena::Allocate(*layout_, device_.get());
    parameters_.Bind(arena_);
    workspace_.Bind(arena_);
    slots_.Bind(arena_);
  }

  // `poison`: the size of what stands in padding rows.
  Outcome Run(float poison, uint32_t stream) {
    const std::vector<float> nan(layout_->device_bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    device_->CopyIn(arena_.Get<float>(base_), nan.data(), layout_->device_bytes());
    InitializeWeights();
    const Vector gradients = parameters_.AllGradients();
    stream_.Clear(gradients.data, gradients.size * int64_t{sizeof(float)});
    const PackedBatch batch = Batch();
    SublayerContext context{.stream = stream_,
                            .parameters = parameters_,
                            .workspace = workspace_,
                            .batch = batch,
                            .scalars = {.seed = 3, .step = 2, .update = 4, .gradient_scale = 0.125f}};
    context.device_batch = &slots_.Fill(context);
    const Matrix x = Place(0, kSourceRows), out = Place(1, kSourceRows), d_encoder_output = Place(2, kSourceRows);
    const Matrix y = Place(3, kTargetRows), y_out = Place(4, kTargetRows), d_residual = Place(5, kTargetRows);
    Outcome outcome;

    Upload(x, Rows(1, 9, kSourceRows, poison, stream));
    encoder_.Forward(context, arena_, {}, x, out);
    Upload(d_encoder_output, Rows(2, 9, kSourceRows, 0, 0));
    encoder_.Backward(context, arena_, {}, {}, x, d_encoder_output);
    outcome.encoder_gradient = Download(d_encoder_output);

    stream_.Clear(d_encoder_output.data, kSourceRows * kWidth * int64_t{sizeof(float)});
    Upload(y, Rows(3, 17, kTargetRows, poison, stream));
    decoder_.Forward(context, arena_, out, y, y_out);
    const PartTensors of_head{.x = y_out, .saved = arena_.Get<std::byte>(head_saved_), .d_x = d_residual};
    head_.Forward(context, of_head);
    head_.BackwardInput(context, of_head, 0);
    head_.FetchLosses(context);
    context.stream.Synchronize();
    outcome.loss = head_.Losses(context, {}).loss;
    outcome.head_gradient = Download(d_residual);
    decoder_.Backward(context, arena_, out, d_encoder_output, y, d_residual);
    outcome.decoder_gradient = Download(d_residual);
    outcome.encoder_output_gradient = Download(d_encoder_output);
    outcome.gradients.resize(gradients.size);
    stream_.ToHost(outcome.gradients.data(), gradients.data, gradients.size * int64_t{sizeof(float)});
    return outcome;
  }

 private:
  std::vector<int32_t> Sublayers() const {
    std::vector<int32_t> all(plan_.sublayers.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  void InitializeWeights() {
    for (size_t p = 0; p < plan_.parameters.size(); ++p) {
      const Matrix weight = parameters_.Weight(static_cast<int32_t>(p));
      std::vector<float> values(weight.rows * weight.columns);
      InitializeSlice(Stream::Cpu(1), plan_, 9, static_cast<int32_t>(p), 0,
                      {values.data(), static_cast<int64_t>(values.size())});
      for (size_t i = 0; i < values.size(); ++i) {  // off the special values that biases, norms and scalars start from
        values[i] += static_cast<float>(0.1 * NormalAt(8, RandomSite::kSampling, static_cast<uint32_t>(p), i));
      }
      stream_.FromHost(weight.data, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
    }
  }

  Matrix Place(int index, int64_t rows) const { return {arena_.Get<float>(matrices_[index]), rows, kWidth}; }
  void Upload(Matrix to, const std::vector<float>& values) const {
    stream_.FromHost(to.data, values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  std::vector<float> Download(Matrix from) const {
    std::vector<float> values(from.rows * from.columns);
    stream_.ToHost(values.data(), from.data, static_cast<int64_t>(values.size() * sizeof(float)));
    return values;
  }

  std::unique_ptr<Device> device_;
  Stream stream_;
  const ModelPlan plan_;
  std::unique_ptr<ArenaLayout> layout_;
  ArenaSlice base_;
  ParameterStore parameters_;
  Workspace workspace_;
  BatchSlots slots_;
  StackRun encoder_, decoder_;
  OutputHead head_;
  ArenaSlice head_saved_;
  ArenaSlice matrices_[6];
  Arena arena_;
};

void ExpectSameBits(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
        << what << ", element " << i << ": " << a[i] << " vs. " << b[i];
    ASSERT_TRUE(std::isfinite(a[i])) << what << ", element " << i;
  }
}

void ExpectZeroFrom(const std::vector<float>& values, int64_t row, const char* what) {
  for (size_t i = row * kWidth; i < values.size(); ++i) ASSERT_EQ(values[i], 0.0f) << what << ", element " << i;
}

TEST(PaddingRowsTest, WhatStandsInThemChangesNothing) {
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t, ResidualMethod::kReZero,
        ResidualMethod::kAdmin, ResidualMethod::kNormFormer, ResidualMethod::kRFixup, ResidualMethod::kDlclPre,
        ResidualMethod::kDlclPost, ResidualMethod::kKeel, ResidualMethod::kPeriLn, ResidualMethod::kLnScaling,
        ResidualMethod::kResidualDual, ResidualMethod::kMhc}) {
    SCOPED_TRACE(ResidualMethodName(method));
    PaddedModel model(method);
    const Outcome zeros = model.Run(0, 1), poisoned = model.Run(1000, 2);
    EXPECT_EQ(poisoned.loss, zeros.loss);
    ExpectSameBits(poisoned.gradients, zeros.gradients, "weights' gradients");
    ExpectSameBits(poisoned.encoder_gradient, zeros.encoder_gradient, "encoder's input");
    ExpectSameBits(poisoned.decoder_gradient, zeros.decoder_gradient, "decoder's input");
    ExpectSameBits(poisoned.encoder_output_gradient, zeros.encoder_output_gradient, "encoder output");
    ExpectSameBits(poisoned.head_gradient, zeros.head_gradient, "head's input");
    ExpectZeroFrom(zeros.encoder_gradient, 9, "encoder's input");
    ExpectZeroFrom(zeros.encoder_output_gradient, 9, "encoder output");
    ExpectZeroFrom(zeros.decoder_gradient, 17, "decoder's input");
    ExpectZeroFrom(zeros.head_gradient, 17, "head's input");
  }
}

}  // namespace
}  // namespace hadal::testing
