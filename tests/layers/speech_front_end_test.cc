// The front end's gradients are the slopes of its output, over more rows of both convolutions than it works on at a
// time.
#include "layers/speech_front_end.h"

#include <cmath>

#include "gtest/gtest.h"
#include "tests/support/bound_model.h"
#include "tests/support/directional_difference.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

ModelOptions SpeechModel() {
  ModelOptions model = SmallModel(ResidualMethod::kPostLn, NarrowShape(1));
  model.source_vocabulary = 0, model.frame_width = 3, model.front_end_channels = 8;
  return model;
}

// Utterances of arbitrary frames, and one target row each.
PackedBatch UtterancesOf(const std::vector<int32_t>& frames, int32_t frame_width) {
  std::vector<int32_t> rows, offsets = {0};
  for (const int32_t count : frames) {
    rows.push_back(static_cast<int32_t>(SubsampledRows(count)));
    offsets.push_back(offsets.back() + count);
  }
  PackedBatch batch = PairsOf(rows, std::vector<int32_t>(frames.size(), 1), 23);
  std::fill(batch.source.begin(), batch.source.end(), kPadToken);
  batch.frame_width = frame_width;
  batch.frames = NormalValues(int64_t{offsets.back()} * frame_width, /*seed=*/1);
  batch.frame_offsets = offsets;
  return batch;
}

class SpeechFrontEndTest : public ::testing::Test {
 protected:
  SpeechFrontEndTest() : arena_(Arena::Allocate(layout_).value()) { front_end_.Bind(arena_); }

  // Σ w ⊙ y.
  double Loss() {
    front_end_.Forward(model_.Context(), {.y = y_.view(), .saved = saved_.data()});
    double sum = 0;
    for (size_t i = 0; i < y_.values.size(); ++i) sum += double{w_.values[i]} * double{y_.values[i]};
    return sum;
  }
  // Elements of y are sums of some 20 terms behind such sums.
  DifferenceModel Model() const {
    double squares = 0;
    for (const float v : y_.values) squares += double{v} * v;
    return {.rounding = 16 * 0x1p-24 * std::sqrt(squares)};
  }

  // 265 rows of 16, 1 and 8 in an utterance, behind 520 of the first convolution.
  const BoundModel model_{SpeechModel(), UtterancesOf({61, 62, 63, 64, 61, 62, 63, 64, 1,  //
                                                       61, 62, 63, 64, 61, 62, 63, 64, 30},
                                                      SpeechModel().frame_width)};
  const int64_t rows_ = model_.capacity().source_rows, width_ = model_.plan().options.d_model;
  ArenaLayout layout_;
  SpeechFrontEnd front_end_{model_.plan(), rows_, DeviceKind::kCpu, Purpose::kTraining, layout_};
  Arena arena_;
  std::vector<std::byte> saved_ = std::vector<std::byte>(front_end_.saved_bytes());
  OwnedMatrix y_{rows_, width_}, w_{rows_, width_, 2, 1.0f};
};

TEST_F(SpeechFrontEndTest, GradientsAreTheSlopesOfItsOutput) {
  ASSERT_GT(rows_, SpeechFrontEnd::kRows) << "one block is not enough";
  Loss();
  OwnedMatrix d_y = w_;
  front_end_.BackwardInput(model_.Context(), {.saved = saved_.data(), .d_y = d_y.view()}, 0);
  const SublayerRecord& record = model_.plan().sublayers[model_.plan().source_embedding()];
  ASSERT_EQ(record.parameters, 4) << "two convolutions with biases";
  for (int32_t p = record.first_parameter; p < record.first_parameter + record.parameters; ++p) {
    EXPECT_TRUE(IsGradientAlongDirections(
        model_.WeightOf(p), model_.GradientOf(p), [this] { return Loss(); }, Model(), p))
        << model_.plan().ParameterName(p);
  }
}

}  // namespace
}  // namespace hadal::testing
