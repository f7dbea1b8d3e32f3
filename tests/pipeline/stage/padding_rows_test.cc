// Padding rows on a device: whatever stands in them, and in memory that nobody has written yet, every gradient of
// theirs is 0, and no gradient of a weight and no row of a sentence has another bit.
#include <cmath>
#include <cstring>
#include <numeric>

#include "gtest/gtest.h"
#include "layers/initialization.h"
#include "layers/parameter_store.h"
#include "pipeline/stage/chunk.h"
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

// What a forward and a backward through a model leave that may not depend on padding.
struct Outcome {
  std::vector<float> gradients, encoder_gradient, decoder_gradient, encoder_output_gradient;
  double loss = 0;
};

// The stacks of a model, a chunk each, the decoder's with the head.
class PaddedModel {
 public:
  explicit PaddedModel(ResidualMethod method)
      : plan_(ModelPlan::Make(SmallModel(
            method, {.encoder_layers = 2, .decoder_layers = 2, .d_model = kWidth, .vocabulary = kVocabulary}))) {
    shared_.ReserveRequired(/*pending_slots=*/0, layout_);
    arena_ = *Arena::Allocate(layout_, device_.get());
    parameters_.Bind(arena_);
    workspace_.Bind(arena_);
    shared_.Bind(arena_);
    encoder_.Bind(arena_);
    decoder_.Bind(arena_);
  }

  // `poison`: the size of what stands in padding rows. The step is the weights' fourth update.
  Outcome Run(float poison, uint32_t stream, int64_t updates_before = 0) {
    const std::vector<float> nan(layout_.device_bytes() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    device_->CopyIn(arena_.Get<float>(base_), nan.data(), layout_.device_bytes());
    InitializeWeights();
    const Vector gradients = parameters_.AllGradients();
    stream_.Clear(gradients.data, gradients.size * int64_t{sizeof(float)});
    const PackedBatch batch = Batch();
    SublayerContext context{.stream = stream_,
                            .parameters = parameters_,
                            .workspace = workspace_,
                            .batch = batch,
                            .scalars = {.seed = 3,
                                        .step = 2,
                                        .update = 4 - updates_before,
                                        .gradient_scale = 0.125f,
                                        .updates_before = updates_before}};
    encoder_.Load(context);
    decoder_.Load(context);
    Outcome outcome;
    const std::vector<float> x = Rows(1, 9, kSourceRows, poison, stream), d_out = Rows(2, 9, kSourceRows, 0, 0);
    const std::vector<float> y = Rows(3, 17, kTargetRows, poison, stream);
    encoder_.Forward(context, {{View(x)}});
    encoder_.Backward(context, {{View(d_out)}});
    outcome.encoder_gradient = Download(encoder_.input_gradient(0, batch));
    const std::vector<float> out = Download(encoder_.output(0, batch));
    decoder_.Forward(context, {{View(y), View(out)}});
    decoder_.head()->FetchLosses(context);
    context.stream.Synchronize();
    outcome.loss = decoder_.head()->Losses(context, {}).loss;
    decoder_.Backward(context, {});
    outcome.decoder_gradient = Download(decoder_.input_gradient(0, batch));
    outcome.encoder_output_gradient = Download(decoder_.input_gradient(1, batch));
    outcome.gradients = Download(Matrix{gradients.data, 1, gradients.size});
    return outcome;
  }

 private:
  static ConstAnyMatrix View(const std::vector<float>& rows) {
    return ConstMatrix(rows.data(), std::ssize(rows) / kWidth, kWidth);
  }
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
  std::vector<float> Download(AnyMatrix from) const {
    std::vector<float> values(from.rows * from.columns);
    stream_.ToHost(values.data(), from.data, static_cast<int64_t>(values.size() * sizeof(float)));
    return values;
  }

  const std::unique_ptr<Device> device_ = MakeTestDevice(5);
  const Stream stream_ = Stream::On(*device_, 1);
  const ModelPlan plan_;
  ArenaLayout layout_;
  const ArenaSlice base_ = layout_.ReserveLasting<float>("base", 16);
  ParameterStore parameters_{plan_, Sublayers(), Purpose::kTraining, layout_};
  Workspace workspace_{plan_, kCapacity, stream_, Purpose::kTraining, layout_};
  SharedActivations shared_{plan_, kCapacity, Purpose::kTraining, layout_};
  Chunk encoder_{plan_, {.first = 1, .last = plan_.target_embedding(), .on_device = true}, kCapacity, shared_, layout_};
  Chunk decoder_{
      plan_,
      {.first = plan_.target_embedding() + 1, .last = static_cast<int32_t>(plan_.sublayers.size()), .on_device = true},
      kCapacity,
      shared_,
      layout_};
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

TEST(PaddingRowsTest, GrowingGainsCountTheUpdatesOfTheRunsBefore) {
  PaddedModel model(ResidualMethod::kBranchNorm);
  EXPECT_EQ(model.Run(0, 1, /*updates_before=*/3).loss, model.Run(0, 1).loss);
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
    ExpectZeroFrom(zeros.encoder_gradient, 9, "encoder's input");
    ExpectZeroFrom(zeros.encoder_output_gradient, 9, "encoder output");
    ExpectZeroFrom(zeros.decoder_gradient, 17, "decoder's input");
  }
}

}  // namespace
}  // namespace hadal::testing
