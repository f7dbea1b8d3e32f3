// The rules on made-up figures; tests/launch/diagnosis_test.sh has runs that provoke them and one that does not.
#include "pipeline/instruments/run_diagnosis.h"

#include <cmath>
#include <functional>

#include "gmock/gmock.h"
#include "tests/support/tiny_plan.h"

namespace hadal {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kEncoder = 8, kSublayers = 20;  // of 4 layers a side
const double kFrequencies = std::log(10.0);   // ten tokens, equally frequent

// A step's figures, healthy unless a test changes them.
struct Figures {
  double nll = 2;
  double learning_rate = 2e-3;
  std::vector<float> norms = std::vector<float>(kSublayers, 1.0f);
  int64_t target_tokens = 10;
  bool skipped = false;
};

class RunDiagnosisTest : public testing::Test {
 protected:
  // What is said from the step after the last one up to `last`.
  std::vector<std::string> To(int64_t last, const std::function<void(int64_t step, Figures&)>& change) {
    std::vector<std::string> said;
    while (step_ < last) {
      Figures figures;
      change(++step_, figures);
      update_ += figures.skipped ? 0 : 1;
      const StepMetrics metrics{.step = step_,
                                .update = update_,
                                .nll = figures.nll,
                                .learning_rate = figures.learning_rate,
                                .target_tokens = figures.target_tokens,
                                .skipped = figures.skipped,
                                .depth_gradient_norms = figures.norms};
      for (const std::string& text : diagnosis_.AfterStep(metrics, batches_)) said.push_back(text);
    }
    return said;
  }
  void SetEncoder(float norm, Figures& figures) { std::fill_n(figures.norms.begin(), kEncoder, norm); }

  const ModelPlan plan_ = TinyPlan({.encoder_layers = 4, .decoder_layers = 4});
  RateOptions rate_{.peak = 4e-3, .warmup_updates = 40};
  std::vector<PackedBatch> batches_{{.target = {4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}};
  RunDiagnosis diagnosis_{plan_, rate_};
  int64_t step_ = 0, update_ = 0;
};

TEST_F(RunDiagnosisTest, AHealthyRunIsNotWorthAWord) {
  EXPECT_THAT(To(1000,
                 [](int64_t step, Figures& figures) {
                   // Through the frequencies' loss, with noise, to where it stays.
                   figures.nll = 0.8 + 2.4 * std::exp(-static_cast<double>(step) / 100) + (step % 2 == 0 ? 0.2 : -0.2);
                   for (size_t s = 0; s < figures.norms.size(); ++s)
                     figures.norms[s] = 3e-2f * static_cast<float>(s + 1);
                 }),
              IsEmpty());
}

TEST_F(RunDiagnosisTest, TheEncodersGradientIsNamedOnceAndItsEndOnce) {
  const auto weak = [this](int64_t, Figures& figures) { SetEncoder(1e-4f, figures); };
  const auto strong = [](int64_t, Figures&) {};
  EXPECT_THAT(To(20, strong), IsEmpty());
  EXPECT_THAT(To(40, weak), IsEmpty()) << "two blocks of ten";
  EXPECT_THAT(To(45, strong), IsEmpty()) << "a block's norm is the largest of its steps'";
  EXPECT_THAT(To(79, weak), IsEmpty());
  EXPECT_THAT(
      To(100, weak),
      ElementsAre(HasSubstr("gradient has been 8.2e-05 of the decoder's since step 51: the output hardly depends on "
                            "the source. What usually helps: a lower learning_rate.peak or a longer warm-up")));
  EXPECT_THAT(To(140, [this](int64_t, Figures& figures) { SetEncoder(5e-3f, figures); }), IsEmpty()) << "neither";
  EXPECT_THAT(To(169, strong), IsEmpty());
  EXPECT_THAT(To(170, strong), ElementsAre("over: the encoder's gradient is 0.82 of the decoder's again"));
  EXPECT_THAT(To(300, weak), IsEmpty());
}

// Adam has moved no weight by more than 0.009 before step 90.
TEST_F(RunDiagnosisTest, WhatNothingHasMovedYetIsNotJudged) {
  const auto still = [this](int64_t, Figures& figures) {
    SetEncoder(0, figures);
    figures.nll = 6;
    figures.learning_rate = 1e-4;
  };
  EXPECT_THAT(To(90, still), IsEmpty());
  EXPECT_THAT(To(110, still), ElementsAre(AllOf(HasSubstr("has been 0 of the decoder's since step 1:"),
                                                HasSubstr("helps: other gains of the cross-attention"))));
  EXPECT_THAT(To(180, still), IsEmpty()) << "the loss: two windows from there on";
  EXPECT_THAT(To(210, still), ElementsAre(HasSubstr("the loss has not moved since step ")));
}

TEST_F(RunDiagnosisTest, SkippedStepsDoNotCount) {
  EXPECT_THAT(To(60,
                 [this](int64_t step, Figures& figures) {
                   SetEncoder(step % 2 == 0 ? 0.0f : NAN, figures);
                   figures.skipped = step % 2 == 1;
                   if (figures.skipped) figures.nll = NAN;
                 }),
              ElementsAre(HasSubstr("has been 0 of the decoder's since step 2:")));
}

TEST_F(RunDiagnosisTest, VanishingNamesTheLayerBelowWhichItBegins) {
  const auto vanish = [](float left) {
    return [left](int64_t, Figures& figures) { std::fill_n(figures.norms.begin() + kEncoder, 7, left); };
  };
  EXPECT_THAT(To(30, [](int64_t, Figures& figures) { figures.norms[kEncoder] = figures.norms[kEncoder + 1] = 0; }),
              IsEmpty())
      << "two are not a trend";
  EXPECT_THAT(
      To(60, vanish(9e-5f)),
      ElementsAre(AllOf(HasSubstr("vanish from decoder layer 2 down since step 31: in each of the decoder's 7 lowest "),
                        HasSubstr("sublayers (of 12)"), HasSubstr("below 1e-04 of"))));
  EXPECT_THAT(To(90, vanish(9e-4f)), IsEmpty()) << "still less than 1e-3";
  EXPECT_THAT(To(120, vanish(2e-3f)), ElementsAre(HasSubstr("over: the gradients of the decoder's lower layers")));
}

TEST_F(RunDiagnosisTest, AnEncodersLayersVanishByThemselves) {
  EXPECT_THAT(To(30, [](int64_t, Figures& figures) { std::fill_n(figures.norms.begin(), 5, 0.0f); }),
              ElementsAre(HasSubstr("vanish from encoder layer 2 down since step 1: in each of the encoder's 5 lowest "
                                    "sublayers (of 8)")));
}

// Branches whose learned gain is still 0 have no gradient.
TEST_F(RunDiagnosisTest, WhatVanishesAboveAStacksBottomIsNotATrend) {
  EXPECT_THAT(To(60, [](int64_t, Figures& figures) { std::fill_n(figures.norms.begin() + kEncoder + 1, 7, 1e-6f); }),
              IsEmpty());
}

// ln 10 = 2.303, and (10 - 1) / (2·1000) of the 1,000 tokens that 100 steps have.
TEST_F(RunDiagnosisTest, ALossOfTokenFrequenciesIsNamedAfterTwoWindows) {
  const auto flat = [](int64_t, Figures& figures) { figures.nll = kFrequencies - 0.04; };
  EXPECT_THAT(To(99, flat), IsEmpty());
  EXPECT_THAT(To(200, flat), ElementsAre(AllOf(HasSubstr("stays at that of token frequencies alone since step 1 "),
                                               HasSubstr("frequencies 2.307"), Not(HasSubstr("Warm-up lasts")))));
  EXPECT_THAT(To(260, [](int64_t, Figures& figures) { figures.nll = kFrequencies - 0.4; }),
              ElementsAre(HasSubstr("over: the nll is 1.9")));
}

TEST_F(RunDiagnosisTest, WithinWarmUpItMayBeTooEarlyToTell) {
  rate_.warmup_updates = 500;
  EXPECT_THAT(To(200, [](int64_t, Figures& figures) { figures.nll = kFrequencies; }),
              ElementsAre(HasSubstr("Warm-up lasts until update 500: it may be too early to tell. ")));
}

TEST_F(RunDiagnosisTest, ALossThatFallsOrIsBelowTheFrequenciesIsNot) {
  EXPECT_THAT(To(200, [](int64_t step, Figures& figures) { figures.nll = 6 - 0.01 * static_cast<double>(step); }),
              IsEmpty());
  EXPECT_THAT(To(400, [](int64_t, Figures& figures) { figures.nll = kFrequencies - 0.06; }), IsEmpty());
}

TEST_F(RunDiagnosisTest, AJumpIsNamedWithItsRateAndItsDistanceFromWarmUp) {
  const auto run = [](int64_t step, Figures& figures) { figures.nll = step == 1 ? 6 : step < 47 ? 2 : 3; };
  EXPECT_THAT(To(120, run),
              ElementsAre(AllOf(HasSubstr("jumped at step 47, from nll 2.000 (step 11) to 3.000 in the mean"),
                                HasSubstr("learning rate was 0.002 there (peak 0.004), 7 updates after the end of"))));
}

// An encoder alone has none where no token is masked, and an nll of 0.
TEST_F(RunDiagnosisTest, StepsWithoutTokensAreNoJump) {
  EXPECT_THAT(To(200,
                 [](int64_t step, Figures& figures) {
                   if (step % 4 == 0) figures.target_tokens = 0, figures.nll = 0;
                 }),
              Each(Not(HasSubstr("jumped"))));
}

TEST_F(RunDiagnosisTest, ARateThatSpoilsTheFirstUpdatesIsAJumpFromTheFirstStep) {
  EXPECT_THAT(
      To(10, [](int64_t step, Figures& figures) { figures.nll = step == 1 ? 3.0 : 50.0; }),
      ElementsAre(HasSubstr("jumped at step 2, from nll 3.000 (step 1) to 45.300 in the mean of 10 updates; the "
                            "learning rate was 0.002 there (peak 0.004), in warm-up, at update 2 of 40")));
}

TEST_F(RunDiagnosisTest, AJumpBeginsAtHalfItsLeastHeight) {
  const auto ramp = [](int64_t step, Figures& figures) { figures.nll = step <= 20 ? 2 : 0.2 * step - 2; };
  EXPECT_THAT(To(30, ramp), ElementsAre(HasSubstr("jumped at step 22, from nll 2.000 (step 1) to 3.100 in the mean")));
}

TEST_F(RunDiagnosisTest, WithoutWarmUpAJumpSaysSo) {
  for (const RateOptions& rate : {RateOptions{.schedule = RateSchedule::kTFixup}, RateOptions{.warmup_updates = 0}}) {
    RunDiagnosis diagnosis(plan_, rate);
    std::vector<std::string> said;
    for (int64_t step = 1; step <= 10; ++step) {
      said = diagnosis.AfterStep({.step = step,
                                  .update = step,
                                  .nll = step == 1 ? 3.0 : 50.0,
                                  .target_tokens = 1,
                                  .depth_gradient_norms = Figures().norms},
                                 {});
    }
    EXPECT_THAT(said, ElementsAre(HasSubstr(", without warm-up. What usually helps")));
  }
}

// Of 2 sublayers a layer.
TEST(LanguageModelDiagnosis, ATenthOfADeepStackIsATrend) {
  const ModelPlan plan = TinyPlan({.encoder_layers = 0, .decoder_layers = 21});
  const RateOptions rate;
  for (const int vanished : {4, 5}) {
    RunDiagnosis diagnosis(plan, rate);
    std::vector<float> norms(42, 1.0f);
    std::fill_n(norms.begin(), vanished, 0.0f);
    std::vector<std::string> said;
    for (int64_t step = 1; step <= 30; ++step) {
      said = diagnosis.AfterStep({.step = step,
                                  .update = step,
                                  .nll = 2,
                                  .learning_rate = 2e-3,
                                  .target_tokens = 1,
                                  .depth_gradient_norms = norms},
                                 {});
    }
    EXPECT_EQ(said.size(), vanished < 5 ? 0u : 1u) << vanished;
  }
}

TEST(LanguageModelDiagnosis, ThereIsNoEncoderToBeWithoutGradient) {
  const ModelPlan plan = TinyPlan({.encoder_layers = 0, .decoder_layers = 4});
  const RateOptions rate;
  RunDiagnosis diagnosis(plan, rate);
  for (int64_t step = 1; step <= 60; ++step) {
    EXPECT_THAT(
        diagnosis.AfterStep({.step = step,
                             .update = step,
                             .nll = 2,
                             .learning_rate = 2e-3,
                             .target_tokens = 1,
                             .depth_gradient_norms = std::vector<float>(plan.options.decoder_sublayers(), 1.0f)},
                            {}),
        IsEmpty());
  }
}

}  // namespace
}  // namespace hadal
