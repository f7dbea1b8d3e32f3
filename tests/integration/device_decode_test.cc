// Beam search on a device beside the CPU's: the same translations, scores alike to fp32, the same bits for every number of stages.
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "layers/model_plan.h"
#include "tests/integration/decode_run.h"
#include "tests/integration/pipeline_run.h"
#include "tests/support/test_device.h"

namespace hadal::testing {
namespace {

constexpr int kVocabulary = 61;

DecodeSpec SmallSpec(ResidualMethod method) {
  DecodeSpec spec;
  spec.model = SmallModel(method, 32, kVocabulary);
  spec.model.encoder_layers = spec.model.decoder_layers = 1;
  ApplyResidualMethod(method, spec.model);
  spec.model.sharing = EmbeddingSharing::kNone;  // a random model does not just repeat its input
  spec.decoder = {.beam = {.beam = 3, .max_length_b = 4}, .longest_source = 16};
  return spec;
}

TEST(DeviceDecodeTest, TranslationsAreThoseOfTheCpu) {
  const std::vector<std::vector<int32_t>> sources = RandomSources(6, 9, kVocabulary, 5);
  for (const ResidualMethod method :
       {ResidualMethod::kDeepNorm, ResidualMethod::kPreLn, ResidualMethod::kB2t, ResidualMethod::kNormFormer,
        ResidualMethod::kSubLn, ResidualMethod::kReZero, ResidualMethod::kRFixup, ResidualMethod::kDlclPre}) {
    DecodeSpec spec = SmallSpec(method);
    const DecodeOutcome cpu = Decode(spec, sources);
    spec.make_device = [](int rank) { return MakeTestDevice(3 + rank); };
    const DecodeOutcome device = Decode(spec, sources);
    ASSERT_EQ(device.translations.size(), cpu.translations.size());
    for (size_t s = 0; s < sources.size(); ++s) {
      const Translation &ours = device.translations[s], &theirs = cpu.translations[s];
      ASSERT_EQ(ours.size(), theirs.size());
      for (size_t h = 0; h < ours.size(); ++h) {
        EXPECT_EQ(ours[h].tokens, theirs[h].tokens) << ResidualMethodName(method) << ", sentence " << s;
        EXPECT_NEAR(ours[h].score, theirs[h].score, 2e-5);
      }
    }
    if (method != ResidualMethod::kDlclPre && method != ResidualMethod::kB2t) continue;
    spec.ranks = 2;
    EXPECT_EQ(FirstDifference(device.translations, Decode(spec, sources).translations), "")
        << ResidualMethodName(method) << ", 2 stages";
  }
}

}  // namespace
}  // namespace hadal::testing
