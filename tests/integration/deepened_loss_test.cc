// A model that is deepened by layers whose branches start at 0 has the shallow model's loss, for every method that
// allows it; the others are refused.

#include <algorithm>
#include <cmath>

#include "gmock/gmock.h"
#include "pipeline/checkpoint/deepening.h"
#include "tests/integration/model_loss.h"
#include "tests/support/small_model.h"

namespace hadal::testing {
namespace {

using ::testing::HasSubstr;

ModelOptions Options(ResidualMethod method, int32_t encoder_layers, int32_t decoder_layers) {
  ModelOptions options = SmallModel(
      method, {.encoder_layers = encoder_layers, .decoder_layers = decoder_layers, .d_model = 32, .vocabulary = 23});
  options.dropout = options.attention_dropout = options.activation_dropout = 0;
  return options;
}

struct Depths {
  int32_t encoder = 0, decoder = 0;
};

void ExpectEqualLoss(ResidualMethod method, Depths shallow, Depths deep) {
  ModelLoss before(Options(method, shallow.encoder, shallow.decoder)),
      after(Options(method, deep.encoder, deep.decoder));
  const auto starts = DeepenedParameters(before.plan(), after.plan(), DeepeningRule::kZero);
  for (size_t p = 0; p < starts->size(); ++p) {
    const Vector from = before.Weight((*starts)[p].source), to = after.Weight(static_cast<int32_t>(p));
    std::copy_n(from.data, from.size, to.data);
    (*starts)[p].Apply(to);
  }
  const double loss = before();
  EXPECT_NEAR(after(), loss, 2e-5 * loss);
}

std::string Refusal(ResidualMethod method, Depths shallow, Depths deep) {
  return std::string(DeepenedParameters(ModelPlan::Make(Options(method, shallow.encoder, shallow.decoder)),
                                        ModelPlan::Make(Options(method, deep.encoder, deep.decoder)),
                                        DeepeningRule::kZero)
                         .status()
                         .message());
}

// Why a model of 2L-3L does not become one of 5L-7L; "" if it does.
std::string Reason(ResidualMethod method) {
  switch (method) {
    case ResidualMethod::kDlclPre:
    case ResidualMethod::kDlclPost:
      return "the checkpoint has no encoder.dlcl.";
    case ResidualMethod::kB2tNoLn:
      return "encoder layer 0 feed-forward multiplies the residual stream";
    case ResidualMethod::kMhc:
    case ResidualMethod::kMhcLite:
      return "mixes residual streams";
    case ResidualMethod::kAttnRes:
    case ResidualMethod::kAttnResDelta:
      return "reads sums of blocks";
    case ResidualMethod::kMixLn:
      return "encoder layer 0 self-attention has its norm at another place";
    default:
      return "";
  }
}

TEST(DeepenedWindowTest, ALayerThatWouldSeeOtherTokensIsRefused) {
  ModelOptions shallow = Options(ResidualMethod::kPreLn, 0, 2), deep = Options(ResidualMethod::kPreLn, 0, 4);
  shallow.block.window = deep.block.window = 2;
  shallow.block.global_every = deep.block.global_every = 2;
  const auto starts = [&] {
    return DeepenedParameters(ModelPlan::Make(shallow), ModelPlan::Make(deep), DeepeningRule::kZero).status();
  };
  EXPECT_THAT(std::string(starts().message()), HasSubstr("decoder layer 2 self-attention sees other tokens"));
  deep.block.global_every = 4;
  EXPECT_TRUE(starts().ok()) << starts();
}

class DeepenedLossTest : public ::testing::TestWithParam<ResidualMethod> {};

TEST_P(DeepenedLossTest, IsTheShallowModels) {
  const Depths shallow{2, 3}, deep{5, 7};
  if (const std::string reason = Reason(GetParam()); !reason.empty()) {
    EXPECT_THAT(Refusal(GetParam(), shallow, deep), HasSubstr(reason));
  } else {
    ExpectEqualLoss(GetParam(), shallow, deep);
    ExpectEqualLoss(GetParam(), {0, 3}, {0, 7});
  }
  // Layers that were Post-LN stay it, and no others are.
  if (GetParam() == ResidualMethod::kMixLn) ExpectEqualLoss(GetParam(), {4, 4}, {8, 12});
}

INSTANTIATE_TEST_SUITE_P(Methods, DeepenedLossTest, ::testing::ValuesIn(AllResidualMethods()),
                         [](const auto& info) { return ResidualMethodName(info.param); });

}  // namespace
}  // namespace hadal::testing
