// The head's losses are those of the definition in double precision, and its gradients their slopes, over more rows
// than it works on at a time.
#include "layers/output_head.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/bound_model.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/directional_difference.h"
#include "tests/support/random_inputs.h"

namespace hadal::testing {
namespace {

constexpr float kGradientScale = 0.125f;
constexpr double kRowRounding = 16 * 0x1p-24;  // of a row's loss, which is about 4

class OutputHeadTest : public ::testing::Test {
 protected:
  SublayerContext Context(bool training = true) const {
    SublayerContext context = model_.Context();
    context.scalars.training = training;
    context.scalars.gradient_scale = kGradientScale;
    return context;
  }
  // A forward makes the gradients too; a backward copies that of x to d_x_.
  void Forward(const SublayerContext& context) {
    head_.Forward(context, {.x = x_.view(), .saved = saved_.data()});
    head_.BackwardInput(context, {.saved = saved_.data(), .d_x = d_x_.view()}, 0);
  }
  double Loss() {
    Forward(Context());
    head_.FetchLosses(Context());
    return double{kGradientScale} * head_.Losses(Context(), {}).loss;
  }
  int32_t sublayer() const { return model_.plan().output_head(); }
  int32_t table() const { return model_.plan().sublayers[sublayer()].table; }
  std::vector<float> TableGradient() const {
    const Matrix gradient = model_.parameters().TableGradient(sublayer());
    return {gradient.data, gradient.data + gradient.rows * gradient.columns};
  }
  // [target rows, vocabulary], row after row.
  std::vector<double> Logits() const {
    const Matrix table = model_.parameters().Weight(this->table());
    std::vector<double> logits;
    for (int64_t r = 0; r < x_.rows; ++r) {
      for (int64_t v = 0; v < table.rows; ++v) {
        double sum = 0;
        for (int64_t i = 0; i < x_.columns; ++i) sum += double{x_.view().row(r)[i]} * double{table.row(v)[i]};
        logits.push_back(sum);
      }
    }
    return logits;
  }
  DifferenceModel Model() const {
    return {.rounding = kGradientScale * kRowRounding * std::sqrt(static_cast<double>(x_.rows))};
  }

  BoundModel model_{SmallModel(ResidualMethod::kPostLn, NarrowShape(1)), PairsOf({2, 3, 1}, {120, 30, 170}, 23)};
  const OutputHead head_{model_.plan(), model_.capacity(), Purpose::kTraining};
  std::vector<std::byte> saved_ = std::vector<std::byte>(head_.saved_bytes());
  OwnedMatrix x_{model_.capacity().target_rows, model_.plan().options.d_model, 1, 1.0f};
  OwnedMatrix d_x_{x_.rows, x_.columns};
};

TEST_F(OutputHeadTest, LossesAreThoseOfTheDefinition) {
  ASSERT_GT(x_.rows, Workspace::kLogitRows) << "one block is not enough";
  const CrossEntropyReferenceResult expected =
      CrossEntropyReference(Logits(), model_.plan().options.target_vocabulary, model_.batch().target,
                            model_.plan().options.label_smoothing, kGradientScale);
  Forward(Context());
  std::vector<float> row_nll(x_.rows);
  head_.FetchLosses(Context());
  const LossSums sums = head_.Losses(Context(), {row_nll.data(), x_.rows});
  EXPECT_TRUE(NearReference(row_nll, expected.nll, /*magnitude=*/4, /*multiple=*/8));
  double loss = 0, nll = 0;
  for (int64_t r = 0; r < x_.rows; ++r) {
    loss += expected.loss[r];
    nll += expected.nll[r];
  }
  EXPECT_NEAR(sums.loss, loss, kRowRounding * static_cast<double>(x_.rows));
  EXPECT_NEAR(sums.nll, nll, kRowRounding * static_cast<double>(x_.rows));
  EXPECT_EQ(sums.tokens, x_.rows);
}

TEST_F(OutputHeadTest, GradientsAreTheSlopesOfTheScaledLoss) {
  Loss();
  const std::vector<float> d_x = d_x_.values, d_table = TableGradient();
  const auto loss = [this] { return Loss(); };
  EXPECT_TRUE(IsGradientAlongDirections(x_.values, d_x, loss, Model(), 1)) << "x";
  EXPECT_TRUE(IsGradientAlongDirections(model_.WeightOf(table()), d_table, loss, Model(), 2)) << "table";
}

TEST_F(OutputHeadTest, GradientOfTheTableIsAddedThatOfTheInputReplaced) {
  Loss();
  const std::vector<float> d_x = d_x_.values, once = TableGradient();
  Loss();
  EXPECT_TRUE(SameBits(d_x_.values, d_x));
  std::vector<double> twice(once.size());
  for (size_t i = 0; i < once.size(); ++i) twice[i] = 2 * double{once[i]};
  EXPECT_TRUE(NearReference(TableGradient(), twice, /*magnitude=*/4, /*multiple=*/4));
}

// The table is shared with both embeddings, whose uses have gradients of their own.
TEST_F(OutputHeadTest, OnlyItsOwnUseOfTheTableGetsAGradient) {
  Loss();
  const std::vector<float> own = TableGradient();
  double of_all = 0, of_own = 0;
  for (const float g : model_.AllGradients()) of_all += double{g} * double{g};
  for (const float g : own) of_own += double{g} * double{g};
  EXPECT_GT(of_own, 0);
  EXPECT_NEAR(of_all, of_own, 1e-12 * of_own);
}

TEST_F(OutputHeadTest, OutsideTrainingTheLossIsTheSameAndThereIsNoGradient) {
  const double trained = Loss();
  model_.ClearGradients();
  head_.Forward(Context(/*training=*/false), {.x = x_.view()});
  head_.FetchLosses(Context(false));
  EXPECT_EQ(double{kGradientScale} * head_.Losses(Context(false), {}).loss, trained);
  const std::vector<float> gradients = model_.AllGradients();
  EXPECT_TRUE(SameBits(gradients, std::vector<float>(gradients.size())));
}

}  // namespace
}  // namespace hadal::testing
