#include "pipeline/instruments/depth_statistics.h"

#include <cmath>

#include "gmock/gmock.h"
#include "pipeline/instruments/depth_recorder.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRows = 301, kWidth = 66;  // more than one block, and a ragged one

class DepthStatisticsTest : public ::testing::TestWithParam<int> {
 protected:
  DepthStatisticsTest()
      : plan_(TinyPlan({.encoder_layers = 2, .d_model = kWidth, .d_ff = kWidth, .vocabulary = 10})),
        statistics_(plan_, {.source_rows = kRows, .target_rows = kRows, .max_length = kRows},
                    {DepthTensor::kOutput, DepthTensor::kHidden}) {
    for (int64_t i = 0; i < kRows * kWidth; ++i) {
      before_.push_back(std::sin(0.37f * static_cast<float>(i)));
      after_.push_back(std::cos(0.11f * static_cast<float>(i * i % 1009)) - 0.2f);
    }
  }

  void Observe(const DepthObservation& observation) { statistics_.Observe(Stream::Cpu(GetParam()), 0, observation); }
  ConstMatrix Before() const { return {before_.data(), kRows, kWidth}; }
  ConstMatrix After() const { return {after_.data(), kRows, kWidth}; }

  const ModelPlan plan_;
  DepthStatistics statistics_;
  std::vector<float> before_, after_;
};

TEST_P(DepthStatisticsTest, SquaresAndCosinesAreThoseOfAPlainComputation) {
  Observe({.tensor = DepthTensor::kOutput, .sublayer = 2, .values = After(), .before = Before()});
  double squares = 0, cosines = 0;
  for (int64_t r = 0; r < kRows; ++r) {
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < kWidth; ++i) {
      const double a = before_[r * kWidth + i], b = after_[r * kWidth + i];
      ab += a * b;
      aa += a * a;
      bb += b * b;
    }
    squares += bb;
    cosines += ab / std::sqrt(aa * bb);
  }
  const TensorSums& sums = statistics_.sums(2, DepthTensor::kOutput);
  EXPECT_NEAR(sums.squares, squares, 1e-12 * squares);
  EXPECT_EQ(sums.elements, kRows * kWidth);
  EXPECT_NEAR(sums.cosines, cosines, 1e-11 * kRows);
  EXPECT_EQ(sums.rows, kRows);
  EXPECT_NEAR(RootMeanSquare(sums), std::sqrt(squares / (kRows * kWidth)), 1e-12);
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutput).elements, 0);
}

TEST_P(DepthStatisticsTest, AFactorIsTakenOutAndMicroBatchesAddUp) {
  Observe({.tensor = DepthTensor::kOutput, .sublayer = 1, .values = After()});
  const double once = statistics_.sums(1, DepthTensor::kOutput).squares;
  Observe({.tensor = DepthTensor::kOutput, .sublayer = 1, .values = After(), .factor = -2});
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutput).squares, once + once / 4);
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutput).elements, 2 * kRows * kWidth);
  statistics_.Clear();
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutput), TensorSums());
}

TEST_P(DepthStatisticsTest, CountsWhatReluLetsThrough) {
  double expected = 0;
  for (float& x : after_) {
    x = std::max(x, 0.0f);
    expected += x > 0 ? 1 : 0;
  }
  Observe({.tensor = DepthTensor::kHidden, .sublayer = 2, .values = After()});
  EXPECT_EQ(statistics_.sums(2, DepthTensor::kHidden).non_zero, expected);
  const double squares = statistics_.sums(2, DepthTensor::kHidden).squares;
  Observe({.tensor = DepthTensor::kHidden, .sublayer = 2, .values = After().Rows(0, 0)});
  EXPECT_EQ(statistics_.sums(2, DepthTensor::kHidden).squares, squares) << "nothing of the tensor before is left";
  Observe({.tensor = DepthTensor::kHidden, .sublayer = 2, .values = After()});
  EXPECT_EQ(statistics_.sums(2, DepthTensor::kHidden).non_zero, 2 * expected);
}

// The longer stack's rows of the widest tensor: more than either stack's of the residual stream.
TEST_P(DepthStatisticsTest, HasRoomForTheLargestTensor) {
  constexpr int64_t kRoom = 2 * DepthStatistics::kBlock;
  const ModelPlan plan = TinyPlan({.d_ff = 64, .vocabulary = 10});
  const std::vector<float> ones(kRoom, 1.0f);
  for (const bool longer_source : {false, true}) {
    const int64_t rows = kRoom / 64, few = 3;
    DepthStatistics statistics(
        plan,
        {.source_rows = longer_source ? rows : few, .target_rows = longer_source ? few : rows, .max_length = rows},
        {DepthTensor::kHidden});
    statistics.Observe(Stream::Cpu(GetParam()), 0,
                       {.tensor = DepthTensor::kHidden, .sublayer = 2, .values = ConstMatrix(ones.data(), rows, 64)});
    EXPECT_EQ(statistics.sums(2, DepthTensor::kHidden).squares, kRoom);
  }
}

TEST_P(DepthStatisticsTest, KeepsTheModelsOutputOfTheLastMicroBatch) {
  DepthStatistics statistics(plan_, {.source_rows = kRows, .target_rows = kRows, .max_length = kRows},
                             {DepthTensor::kModelOutput, DepthTensor::kOutput});
  const auto observe = [&](DepthTensor tensor, ConstMatrix values) {
    statistics.Observe(Stream::Cpu(GetParam()), 0, {.tensor = tensor, .sublayer = 1, .values = values});
  };
  observe(DepthTensor::kModelOutput, Before());
  observe(DepthTensor::kModelOutput, After());
  observe(DepthTensor::kOutput, Before());
  EXPECT_EQ(statistics.model_output(), after_);
  EXPECT_EQ(statistics.sums(1, DepthTensor::kOutput).non_zero, 0) << "counted of hidden layers alone";
  statistics.Clear();
  EXPECT_TRUE(statistics.model_output().empty());
}

TEST_P(DepthStatisticsTest, PassesOverWhatNobodyAskedFor) {
  Observe({.tensor = DepthTensor::kOutputGradient, .sublayer = 1, .values = After()});
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutputGradient), TensorSums());
}

TEST_P(DepthStatisticsTest, RowsOfZeroHaveNoDirection) {
  std::fill_n(before_.begin(), kWidth, 0.0f);
  Observe({.tensor = DepthTensor::kOutput, .sublayer = 1, .values = After(), .before = Before()});
  EXPECT_EQ(statistics_.sums(1, DepthTensor::kOutput).rows, kRows - 1);
  EXPECT_TRUE(std::isfinite(statistics_.sums(1, DepthTensor::kOutput).cosines));
}

INSTANTIATE_TEST_SUITE_P(Threads, DepthStatisticsTest, ::testing::Values(1, 2, 3), ::testing::PrintToStringParamName());

std::vector<int64_t> Steps(const DepthOptions& options, int64_t begin, int64_t end) {
  std::vector<int64_t> steps;
  for (int64_t step = begin; step < end; ++step) {
    if (IsRecordingStep(options, step)) steps.push_back(step);
  }
  return steps;
}

TEST(RecordingSchedule, AllOfTheFirstStepsThenFewerAndFewer) {
  const DepthOptions options{.dense_steps = 4, .per_decade = 4};
  // 4·10^(k/4) = 4, 7.1, 12.6, 22.5, 40, 71.1, 126.5, …
  EXPECT_THAT(Steps(options, 0, 130), ElementsAre(0, 1, 2, 3, 4, 8, 13, 23, 40, 72, 127));
}

TEST(RecordingSchedule, EachDecadeHasAsManyAsItSays) {
  const DepthOptions options{.dense_steps = 100, .per_decade = 20};
  EXPECT_EQ(Steps(options, 0, 100).size(), 100u);
  EXPECT_EQ(Steps(options, 100, 1000).size(), 20u);
  EXPECT_EQ(Steps(options, 1000, 10000).size(), 20u);
  EXPECT_TRUE(IsRecordingStep(options, 1000));
  EXPECT_TRUE(IsRecordingStep(options, 10000));
}

TEST(RecordingSchedule, WithoutDenseStepsCountingBeginsAtOne) {
  EXPECT_THAT(Steps({.dense_steps = 0, .per_decade = 1}, 0, 2000), ElementsAre(1, 10, 100, 1000));
  EXPECT_THAT(Steps({.dense_steps = 2, .per_decade = 0}, 0, 2000), ElementsAre(0, 1));
}

TEST(RecordingSchedule, OffIsOff) { EXPECT_TRUE(Steps({.enabled = false}, 0, 300).empty()); }

}  // namespace
}  // namespace hadal
