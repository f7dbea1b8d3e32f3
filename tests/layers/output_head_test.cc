// The head's losses are those of the definition in double precision, and its gradients their slopes, over more rows
// than it works on at a time.
#include "layers/output_head.h"

#include <cmath>

#include "gtest/gtest.h"
#include "layers/adaptive_head.h"
#include "layers/candidate_head.h"
#include "runtime/arena.h"
#include "runtime/random.h"
#include "tests/support/bound_model.h"
#include "tests/support/cross_entropy_reference.h"
#include "tests/support/directional_difference.h"
#include "tests/support/random_inputs.h"
#include "tests/support/test_device.h"

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
                            model_.plan().options.label_smoothing, model_.plan().options.z_loss, kGradientScale);
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

// A device's first block of rows is padding, which costs the least; every word's logit is its id.
TEST(OutputHeadOnDeviceTest, ABlockOfRowsHasItsOwnTargets) {
  const ModelPlan plan = ModelPlan::Make(SmallModel(ResidualMethod::kPostLn, NarrowShape(1)));
  const int64_t padding = Workspace::LogitRows(DeviceKind::kCuda, plan), width = plan.options.d_model;
  PackedBatch batch;
  batch.target.assign(padding, kPaddingRow);
  batch.target.insert(batch.target.end(), {5, 22, 9});
  const int64_t rows = batch.target_rows();
  const std::unique_ptr<Device> device = MakeTestDevice(/*seed=*/1);
  const Stream stream = Stream::On(*device, 1);
  const ActivationCapacity capacity{.source_rows = 1, .target_rows = rows, .max_length = 1};
  ArenaLayout layout;
  ParameterStore parameters(plan, {plan.output_head()}, Purpose::kInference, layout);
  Workspace workspace(plan, capacity, stream, Purpose::kInference, layout);
  const OutputHead head(plan, capacity, Purpose::kInference);
  const ArenaSlice x_slice = layout.Reserve<float>("x", rows * width),
                   target_slice = layout.Reserve<int32_t>("targets", rows);
  const Arena arena = *Arena::Allocate(layout, device.get());
  parameters.Bind(arena);
  workspace.Bind(arena);
  const Matrix table = parameters.Weight(plan.sublayers[plan.output_head()].table);
  const std::vector<float> x(rows * width, 1.0f);
  std::vector<float> words(table.rows * width, 0.0f);
  double sum = 0;
  for (int64_t v = 0; v < table.rows; ++v) {
    words[v * width] = static_cast<float>(v);
    sum += std::exp(static_cast<double>(v));
  }
  stream.FromHost(table.data, words.data(), std::ssize(words) * int64_t{sizeof(float)});
  stream.FromHost(arena.Get<float>(x_slice), x.data(), x_slice.bytes);
  stream.FromHost(arena.Get<int32_t>(target_slice), batch.target.data(), target_slice.bytes);
  DeviceBatch device_batch;
  device_batch.targets = arena.Get<int32_t>(target_slice);
  const SublayerContext context{.stream = stream,
                                .parameters = parameters,
                                .workspace = workspace,
                                .batch = batch,
                                .scalars = {.training = false},
                                .device_batch = &device_batch};
  head.Forward(context, {.x = ConstMatrix(arena.Get<float>(x_slice), rows, width)});
  head.FetchLosses(context);
  stream.Synchronize();
  std::vector<float> row_nll(rows);
  head.Losses(context, {row_nll.data(), rows});
  EXPECT_EQ(row_nll[padding - 1], 0);
  for (int64_t r = padding; r < rows; ++r) EXPECT_NEAR(row_nll[r], std::log(sum) - batch.target[r], 1e-4) << r;
}

// Of an encoder alone, over more rows than a block; each row is a multiple of its target's embedding.
TEST(MaskedRowsTest, EveryRowsHitCounts) {
  SmallShape shape = NarrowShape(1);
  shape.decoder_layers = 0;
  const BoundModel model(SmallModel(ResidualMethod::kPostLn, shape), PairsOf({2}, {300}, 23));
  const ModelPlan& plan = model.plan();
  const Matrix table = model.parameters().Weight(plan.sublayers[plan.output_head()].table);
  const Vector bias = model.parameters().WeightVector(plan.ParameterOf(plan.output_head(), ParameterRole::kLogitBias));
  OwnedMatrix x(300, plan.options.d_model);
  int64_t hits = 0;
  for (int64_t r = 0; r < x.rows; ++r) {
    const int32_t target = model.batch().target[r];
    for (int64_t c = 0; c < x.columns; ++c) x.view().row(r)[c] = 20 * table.row(target)[c];
    std::vector<double> z;
    for (int64_t v = 0; v < table.rows; ++v) {
      z.push_back(bias[v]);
      for (int64_t c = 0; c < x.columns; ++c) z[v] += double{x.view().row(r)[c]} * table.row(v)[c];
    }
    hits += std::ranges::max(z) == z[target] ? 1 : 0;
  }
  EXPECT_GT(hits, 200);
  const OutputHead head(plan, model.capacity(), Purpose::kTraining);
  SublayerContext context = model.Context();
  context.scalars.training = false;
  head.Forward(context, {.x = x.view()});
  head.FetchLosses(context);
  EXPECT_EQ(head.Losses(context, {}).hits, hits);
}

TEST(CandidateHeadTest, TheEndIsTheModelsEndToken) {
  ModelOptions options = SmallModel(ResidualMethod::kPreLn, NarrowShape(1));
  options.start_token = options.end_token = 7;
  const BoundModel model(options, PairsOf({2}, {3}, 23));
  ArenaLayout layout;
  CandidateHead head(model.plan(), /*rows=*/3, /*candidates=*/23, /*copies_logits=*/false, layout);
  const Arena arena = *Arena::Allocate(layout);
  head.Bind(arena);
  const OwnedMatrix x(3, model.plan().options.d_model, 1, 1.0f);
  const SublayerContext context = model.Context();
  head.Forward(context.stream, context.parameters, context.workspace, x.view());
  const CandidateTable table = head.Table(context.stream, context.workspace, 3, /*logits=*/false);
  int found = 0;
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t k = 0; k < 23; ++k) {
      if (table.tokens.row(r)[k] != 7) continue;
      EXPECT_EQ(table.end[r], table.log_probabilities.row(r)[k]);
      ++found;
    }
  }
  EXPECT_EQ(found, 3);
}

// M·v in double.
std::vector<double> Product(ConstMatrix m, const std::vector<double>& v) {
  std::vector<double> product(m.rows, 0.0);
  for (int64_t i = 0; i < m.rows; ++i) {
    for (int64_t j = 0; j < m.columns; ++j) product[i] += m.row(i)[j] * v[j];
  }
  return product;
}

// −log softmax(z)_i.
double NllOf(const std::vector<double>& z, int64_t i) {
  double sum = 0;
  for (const double logit : z) sum += std::exp(logit);
  return std::log(sum) - z[i];
}

// Both sites drop with the softmax's own probability, not the model's.
void ExpectLossesOfTheDefinition(const BoundModel& model, double magnitude) {
  const ModelPlan& plan = model.plan();
  const ParameterStore& parameters = model.parameters();
  ArenaLayout layout;
  AdaptiveHead head(plan, model.capacity(), Purpose::kTraining, layout);
  const Arena arena = *Arena::Allocate(layout);
  head.Bind(arena);
  std::vector<std::byte> saved(head.saved_bytes());
  const OwnedMatrix x(model.capacity().target_rows, plan.options.d_model, 1, 1.0f);
  const SublayerContext context = model.Context();
  head.Forward(context, {.x = x.view(), .saved = saved.data()});
  head.FetchLosses(context);
  std::vector<float> row_nll(x.rows);
  head.Losses(context, {row_nll.data(), x.rows});

  const AdaptiveSoftmax softmax(plan);
  const auto mask = [&](RandomSite site) {
    return context.MakeDropout(plan.options.adaptive_dropout, plan.output_head(), site);
  };
  const Dropout of_input = mask(RandomSite::kResidual), of_hidden = mask(RandomSite::kActivation);
  std::vector<double> expected;
  for (int64_t r = 0; r < x.rows; ++r) {
    const int32_t target = model.batch().target[r];
    const AdaptiveBand& band =
        *std::ranges::find_if(softmax.bands(), [&](const AdaptiveBand& b) { return b.Holds(target); });
    std::vector<double> u;
    for (int64_t c = 0; c < x.columns; ++c) {
      u.push_back(double{x.view().row(r)[c]} * DropoutFactor(of_input, r * x.columns + c));
    }
    std::vector<double> z = Product(softmax.Words(parameters), u);
    const std::vector<double> classes = Product(softmax.Classes(parameters), u);
    z.insert(z.end(), classes.begin(), classes.end());
    expected.push_back(NllOf(z, band.index == 0 ? target : softmax.bands()[0].words + band.index - 1));
    if (band.index == 0) continue;
    std::vector<double> v = Product(parameters.Weight(softmax.Projection(band)), u);
    for (int64_t c = 0; c < band.width; ++c) v[c] *= DropoutFactor(of_hidden, r * x.columns + c);
    expected.back() += NllOf(Product(parameters.Weight(softmax.Table(band)), v), target - band.first);
  }
  EXPECT_TRUE(NearReference(row_nll, expected, magnitude, /*multiple=*/16));
}

// The second has a band of so many words that its logits are computed in blocks of 128 rows, and about 200 rows there.
TEST(AdaptiveHeadTest, LossesAreThoseOfTheDefinition) {
  SmallShape shape = NarrowShape(1);
  const auto with_bands = [&] {
    return WithAdaptiveSoftmax(SmallModel(ResidualMethod::kPostLn, shape), EmbeddingSharing::kNone, 8, 14);
  };
  ExpectLossesOfTheDefinition(BoundModel(with_bands(), PairsOf({2}, {40}, 23)), 4);
  shape.vocabulary = 100000;
  ExpectLossesOfTheDefinition(BoundModel(with_bands(), PairsOf({2}, {200}, 100000)), 12);
}

TEST(AdaptiveHeadTest, GradientOfTheInputIsTheSlopeOverMoreRowsThanABlock) {
  const BoundModel model(
      WithAdaptiveSoftmax(SmallModel(ResidualMethod::kPostLn, NarrowShape(1)), EmbeddingSharing::kNone, 8, 14),
      PairsOf({2}, {300}, 23));
  ArenaLayout layout;
  AdaptiveHead head(model.plan(), model.capacity(), Purpose::kTraining, layout);
  const Arena arena = *Arena::Allocate(layout);
  head.Bind(arena);
  std::vector<std::byte> saved(head.saved_bytes());
  OwnedMatrix x(300, model.plan().options.d_model, 1, 1.0f), d_x(x.rows, x.columns);
  const SublayerContext context = model.Context();
  const auto loss = [&] {
    head.Forward(context, {.x = x.view(), .saved = saved.data()});
    head.FetchLosses(context);
    return head.Losses(context, {}).loss;
  };
  loss();
  head.BackwardInput(context, {.saved = saved.data(), .d_x = d_x.view()}, 0);
  EXPECT_TRUE(
      IsGradientAlongDirections(x.values, d_x.values, loss, {.rounding = 2 * kRowRounding * std::sqrt(300.0)}, 1));
}

}  // namespace
}  // namespace hadal::testing
